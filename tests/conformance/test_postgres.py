"""The PostgreSQL driver keeps the contract, directly and behind PgBouncer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy
from psycopg import sql
from sqlalchemy.ext.asyncio import create_async_engine

from jobcontract.conformance import AsyncTransactions, ConformanceSuite, Harness, Transactions
from jobcontract.conformance.harness import NotOffered
from jobcontract.contract import Driver
from jobcontract.url import StoreURL
from tests.conformance.transactions import transactions_of
from tests.connections.callers import POSTGRES, Psycopg
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgres import PostgresServer


class RepeatableRead(Psycopg):
    """psycopg's Connection under the isolation level that sees nothing of what others commit meanwhile."""

    def begin(self) -> psycopg.Connection[Any]:
        connection = super().begin()
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return connection


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
        return transactions_of((*POSTGRES, RepeatableRead), url)

    def async_transactions(self, url: str) -> AsyncTransactions:
        return {
            "psycopg": partial(_psycopg_transaction, url),
            "SQLAlchemy": partial(_sqlalchemy_transaction, url),
        }

    def disconnect(self, driver: Driver) -> None:
        with self.server.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    def corrupt(self, url: str, job_id: str, input_ref: str) -> None:
        update = sql.SQL("UPDATE {}.live_jobs SET input_ref = %s WHERE id = %s").format(_schema(url))
        with self.server.connect() as connection:
            try:
                connection.execute(update, (input_ref, job_id))
            except psycopg.errors.InvalidTextRepresentation:  # the column's type is json
                raise NotOffered("way to store what is not JSON") from None


class PoolerHarness(PostgresHarness):
    """Behind a pooler in transaction mode, which LISTEN does not get through."""

    listens = False


class TestDirect(ConformanceSuite):
    @pytest.fixture
    def harness(self, postgres_server: PostgresServer) -> Harness:
        return PostgresHarness(postgres_server, postgres_server.url())


class TestBehindPgBouncer(ConformanceSuite):
    @pytest.fixture
    def harness(self, postgres_server: PostgresServer, pgbouncer_server: PgBouncerServer) -> Harness:
        return PoolerHarness(postgres_server, pgbouncer_server.url())


def _schema(url: str) -> sql.Identifier:
    return sql.Identifier(StoreURL.parse(url).query["schema"])


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
