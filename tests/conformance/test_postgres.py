"""The PostgreSQL driver keeps the contract, directly and behind PgBouncer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sqlalchemy.ext.asyncio import create_async_engine

from jobcontract.conformance import AsyncTransactions, ConformanceSuite, Harness, Transactions
from jobcontract.conformance.harness import NotOffered
from jobcontract.url import StoreURL
from tests.connections.callers import POSTGRES, Caller, Psycopg
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgres import PostgresServer


class PostgresHarness(Harness):
    """A schema of its own for each store, in one database, which is made much faster than a database."""

    def __init__(self, server: PostgresServer, base: str) -> None:
        self.server = server
        self.base = base

    def create(self) -> str:
        return f"{self.base}?schema=test_{uuid4().hex}"

    def destroy(self, url: str) -> None:
        with self.server.connect() as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(_schema(url)))

    def transactions(self, url: str) -> Transactions:
        return {str(kind): partial(_transaction, kind, url) for kind in POSTGRES}

    def async_transactions(self, url: str) -> AsyncTransactions:
        return {
            "psycopg": partial(_psycopg_transaction, url),
            "SQLAlchemy": partial(_sqlalchemy_transaction, url),
        }

    def corrupt(self, url: str, job_id: str, input_ref: str) -> None:
        update = sql.SQL("UPDATE {}.live_jobs SET input_ref = %s WHERE id = %s").format(_schema(url))
        with self.server.connect() as connection:
            try:
                connection.execute(update, (input_ref, job_id))
            except psycopg.errors.InvalidTextRepresentation:  # the column's type is json
                raise NotOffered("way to store what is not JSON") from None


class TestDirect(ConformanceSuite):
    @pytest.fixture
    def harness(self, postgres_server: PostgresServer) -> Harness:
        return PostgresHarness(postgres_server, postgres_server.url())


class TestBehindPgBouncer(ConformanceSuite):
    @pytest.fixture
    def harness(self, postgres_server: PostgresServer, pgbouncer_server: PgBouncerServer) -> Harness:
        return PostgresHarness(postgres_server, pgbouncer_server.url())


def _schema(url: str) -> sql.Identifier:
    return sql.Identifier(StoreURL.parse(url).query["schema"])


@contextmanager
def _transaction(kind: Callable[[str], Caller], url: str) -> Generator[object]:
    caller = kind(url)
    with closing(caller):
        connection = caller.begin()
        try:
            yield connection
        except BaseException:
            caller.rollback()
            raise
        caller.commit()


@asynccontextmanager
async def _psycopg_transaction(url: str) -> AsyncGenerator[object]:
    async with await psycopg.AsyncConnection.connect(**Psycopg(url).parts()) as connection:
        yield connection


@asynccontextmanager
async def _sqlalchemy_transaction(url: str) -> AsyncGenerator[object]:
    engine = create_async_engine(
        Psycopg(url).sqlalchemy_url(asynchronous=True), poolclass=sqlalchemy.NullPool
    )
    async with engine.begin() as connection:
        yield connection
