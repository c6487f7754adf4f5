"""Celery on RabbitMQ: as on Redis; durable queues, persistent messages, publisher confirms."""

from __future__ import annotations

import celery_redis
import stage

if __name__ == "__main__":
    stage.main(celery_redis.prepare, celery_redis.register, celery_redis.work)
