"""Celery: late acknowledgement, no results, a prefetch for short tasks; one process, which runs them too."""

from __future__ import annotations

import stage
from celery import Celery

PREFETCH = 128
OPTIONS = ["--pool=solo", "--loglevel=ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]


def application(url, mark=None):
    app = Celery("bench", broker=url)
    app.conf.update(
        task_acks_late=True,  # a killed worker loses no task
        task_ignore_result=True,
        worker_prefetch_multiplier=PREFETCH,
        broker_transport_options={"confirm_publish": True},
        worker_enable_remote_control=False,
    )

    @app.task(name="noop")
    def noop(number, sent):
        mark(sent)

    return app, noop


def prepare(url):
    pass


def register(url, registering):
    _, noop = application(url)
    registering.run(one=lambda job: noop.apply_async(kwargs=job), many=None)


def work(url, mark):
    app, _ = application(url, mark)
    app.worker_main(["worker", *OPTIONS])


if __name__ == "__main__":
    stage.main(prepare, register, work)
