"""What a claim reads does not grow with what is in the table."""

from __future__ import annotations

from contextlib import closing

import psycopg

from benchmarks.claim_plan import cached_plan_buffers, fill, fresh_plan_buffers, prepare
from tests.postgres.stores import open_store
from tests.servers.postgres import PostgresServer

MILLION = 1_000_000
# Ten ranges are looked at, ten jobs are locked, updated and entered in three indexes: 168 on PostgreSQL 15. A
# range that is read past its end would cost thousands.
MOST_BUFFERS = 400


def test_a_claim_of_ten_among_two_million_touches_few_pages(postgres_server: PostgresServer) -> None:
    """A million jobs are due, and a million of better priority, in front of them in the index, are not.

    They have just been loaded: no statistics know of them, and the session made its plan on the empty table.
    """
    database = postgres_server.create_database()
    url = postgres_server.url(database)
    store = open_store(url)
    with closing(store.driver), psycopg.connect(url, autocommit=True) as connection:
        store.driver.install()
        prepare(connection)
        assert store.claim(10) == []
        fill(connection, MILLION)

        assert cached_plan_buffers(store.driver) <= MOST_BUFFERS
        assert fresh_plan_buffers(connection, store.driver) <= MOST_BUFFERS, "as behind a pooler"
        claimed = store.claim(10)
        assert [each.record.priority for each in claimed] == [0] * 10

        connection.execute("ANALYZE jobcontract.live_jobs")
        assert cached_plan_buffers(store.driver) <= MOST_BUFFERS
        assert fresh_plan_buffers(connection, store.driver) <= MOST_BUFFERS
    postgres_server.drop_database(database)
