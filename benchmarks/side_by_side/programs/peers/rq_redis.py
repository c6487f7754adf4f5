"""RQ: a SimpleWorker, which forks no process per job."""

from __future__ import annotations

import logging

import redis
import stage
from rq import Queue, SimpleWorker

mark = None


def noop(number, sent):
    mark(sent)


def open_queue(url):
    return Queue("default", connection=redis.Redis.from_url(url))


def prepare(url):
    pass


def register(url, registering):
    queue = open_queue(url)

    def many(jobs):
        queue.enqueue_many([Queue.prepare_data("rq_redis.noop", kwargs=job, result_ttl=0) for job in jobs])

    registering.run(one=lambda job: queue.enqueue("rq_redis.noop", kwargs=job, result_ttl=0), many=many)


def work(url, marking):
    import rq_redis  # as the worker will find it, not as __main__

    rq_redis.mark = marking
    queue = open_queue(url)
    SimpleWorker([queue], connection=queue.connection).work(logging_level=logging.ERROR)


if __name__ == "__main__":
    stage.main(prepare, register, work)
