"""Values at the far ends: of settings, of hand-edited rows, and of a backend's life."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobcontract import Backend, ConfigError, Job, StoreUnavailable, get_backend
from tests.servers.postgres import PostgresServer


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host/db?timeout=100d",
        "postgresql://host/db?retention=999999w",
        "sqlite:///jobs.db?busy_timeout=100d",
        "sqlite:///jobs.db?retention=999999999d",
    ],
)
def test_a_length_of_time_that_no_store_can_count_is_refused_at_once(url: str) -> None:
    with (
        pytest.raises(ConfigError, match=r"(timeout|retention)'.* less than or equal to"),
        get_backend(url) as backend,
    ):
        backend.stats()


def test_an_instant_beyond_the_calendar_does_not_spoil_the_page_it_is_on(
    postgres_server: PostgresServer,
) -> None:
    database = postgres_server.create_database()
    with get_backend(postgres_server.url(database)) as backend:
        backend.install()
        edited, other = Job(kind="edited"), Job(kind="other")
        backend.register_many([edited, other])
        with postgres_server.connect(database) as connection:
            connection.execute(
                "UPDATE jobcontract.live_jobs SET state = 'running', token = gen_random_uuid(),"
                " lease_until = '20000-01-01', created_at = '4000-01-01 BC' WHERE kind = 'edited'"
            )
        found = {status.kind: status for status in backend.jobs()}
        assert found.keys() == {"edited", "other"}
        assert found["edited"].lease_expires_at == datetime.max.replace(tzinfo=UTC)
        assert found["edited"].created_at == datetime.min.replace(tzinfo=UTC)


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_a_backend_may_be_closed_while_others_register_with_it(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if store == "sqlite":
        url = f"sqlite:///{tmp_path}/jobs.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.url(server.create_database())
    with get_backend(url) as backend:
        backend.install()
        errors: list[Exception] = []
        registered: list[int] = []
        stop = threading.Event()

        def register() -> None:
            while not stop.is_set():
                try:
                    registered.append(backend.register(Job(kind="k")).created)
                except Exception as error:
                    errors.append(error)

        threads = [threading.Thread(target=register) for _ in range(4)]
        for thread in threads:
            thread.start()
        _close_often(backend, until=lambda: len(registered) >= 100)
        stop.set()
        for thread in threads:
            thread.join()
        # Closed twice within one call, a registration may have to be repeated by its caller.
        assert all(isinstance(error, StoreUnavailable) for error in errors), errors
        assert sum(stats.ready for stats in backend.stats()) >= len(registered)


def _close_often(backend: Backend, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not until():
        assert time.monotonic() < deadline
        backend.close()
        time.sleep(0.01)
