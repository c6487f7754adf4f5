"""dramatiq on Redis: the worker of its command line in this process, 8 threads, its usual middleware."""

from __future__ import annotations

import signal
import threading

import dramatiq
import stage
from dramatiq.brokers.redis import RedisBroker

THREADS = 8


def open_broker(url):
    return RedisBroker(url=url)


def actor(broker, mark=None):
    @dramatiq.actor(broker=broker, queue_name="default", actor_name="noop")
    def noop(number: int, sent: int) -> None:
        mark(sent)

    return noop


def prepare(url):
    pass


def register(url, registering):
    broker = open_broker(url)
    noop = actor(broker)
    registering.run(one=lambda job: noop.send(**job), many=None)
    broker.close()


def work(url, mark):
    broker = open_broker(url)
    actor(broker, mark)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    broker.emit_after("process_boot")
    worker = dramatiq.Worker(broker, worker_threads=THREADS)
    worker.start()
    stopped.wait()
    worker.stop()
    broker.close()


if __name__ == "__main__":
    stage.main(prepare, register, work)
