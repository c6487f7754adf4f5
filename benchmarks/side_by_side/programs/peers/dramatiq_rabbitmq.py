"""dramatiq on RabbitMQ: as on Redis, with publisher confirms (queues are durable, messages persistent)."""

from __future__ import annotations

import dramatiq_redis
import stage
from dramatiq.brokers.rabbitmq import RabbitmqBroker

dramatiq_redis.open_broker = lambda url: RabbitmqBroker(url=url, confirm_delivery=True)

if __name__ == "__main__":
    stage.main(dramatiq_redis.prepare, dramatiq_redis.register, dramatiq_redis.work)
