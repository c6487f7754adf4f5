"""A backup or a report that reads PostgreSQL's history for hours must hold up nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobcontract import Backend, Job, get_backend
from tests.servers.postgres import PostgresServer

LAST_PARTITION = """\
SELECT max(relid::regclass::text) FROM pg_partition_tree('jobcontract.done_jobs')
WHERE relid::regclass::text ~ '_[0-9]{8}$'
"""


@pytest.mark.parametrize("make_partitions", [Backend.rescue, Backend.install])
def test_a_missing_day_is_not_waited_for_while_somebody_reads_the_history(
    postgres_server: PostgresServer, make_partitions: Callable[[Backend], object]
) -> None:
    database = postgres_server.create_database()
    with get_backend(postgres_server.url(database)) as backend, postgres_server.connect(database) as owner:
        backend.install()
        (last,) = owner.execute(LAST_PARTITION).fetchone() or ("",)
        owner.execute(f"DROP TABLE {last}".encode())
        with (
            postgres_server.connect(database, autocommit=False) as backup,
            get_backend(postgres_server.url(database)) as producer,
            ThreadPoolExecutor() as others,
        ):
            backup.execute("SELECT count(*) FROM jobcontract.done_jobs")
            begun = time.monotonic()
            keeping = others.submit(make_partitions, backend)
            assert all(producer.register(Job(kind="k")).created for _ in range(20))
            keeping.result(timeout=5)
            assert time.monotonic() - begun < 5, (
                "the deadline of a call is 10 s, and nothing may come near it"
            )
        assert owner.execute(LAST_PARTITION).fetchone() != (last,)
        backend.install()
        assert owner.execute(LAST_PARTITION).fetchone() == (last,)
