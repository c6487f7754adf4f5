"""taskiq on RabbitMQ: a quorum queue, a prefetch of 100."""

from __future__ import annotations

import stage
import taskiq_redis_stream
from taskiq_aio_pika import AioPikaBroker

taskiq_redis_stream.open_broker = lambda url: AioPikaBroker(url, qos=100)

if __name__ == "__main__":
    stage.main(taskiq_redis_stream.prepare, taskiq_redis_stream.register, taskiq_redis_stream.work)
