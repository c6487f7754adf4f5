"""`jobcontract.aio.once`, on the asynchronous connections."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import psycopg
import pytest
import sqlalchemy.ext.asyncio

from jobcontract import InvalidJob, Job, once
from jobcontract.aio import once as once_awaited
from tests.connections.callers import Psycopg
from tests.effects.conftest import Running

KEYED = Running(Job(kind="embed", idempotency_key="7:v3"))
Begin = Callable[[str], AbstractAsyncContextManager[object]]


class Undo(Exception):
    """Ends a transaction with a rollback."""


@asynccontextmanager
async def psycopg_transaction(url: str) -> AsyncGenerator[object]:
    """psycopg's AsyncConnection in a transaction block."""
    async with (
        await psycopg.AsyncConnection.connect(**Psycopg(url).parts(), autocommit=True) as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def psycopg_pipeline(url: str) -> AsyncGenerator[object]:
    """psycopg's AsyncConnection in pipeline mode, where no statement has an answer before the next sync."""
    async with (
        await psycopg.AsyncConnection.connect(**Psycopg(url).parts(), autocommit=True) as connection,
        connection.pipeline(),
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def sqlalchemy_connection(url: str) -> AsyncGenerator[object]:
    """SQLAlchemy's AsyncConnection."""
    engine = sqlalchemy.ext.asyncio.create_async_engine(Psycopg(url).sqlalchemy_url(asynchronous=True))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def sqlalchemy_session(url: str) -> AsyncGenerator[object]:
    """SQLAlchemy's AsyncSession."""
    engine = sqlalchemy.ext.asyncio.create_async_engine(Psycopg(url).sqlalchemy_url(asynchronous=True))
    try:
        async with sqlalchemy.ext.asyncio.AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


@pytest.mark.parametrize(
    "begin", [psycopg_transaction, psycopg_pipeline, sqlalchemy_connection, sqlalchemy_session]
)
def test_once_is_awaited_in_the_callers_transaction(url: str, installed: None, begin: Begin) -> None:
    async def run() -> list[bool]:
        answers: list[bool] = []
        with contextlib.suppress(Undo):
            async with begin(url) as connection:
                answers.append(await once_awaited(connection, KEYED))
                raise Undo
        for _ in range(2):
            async with begin(url) as connection:
                answers.append(await once_awaited(connection, KEYED))
        return answers

    assert asyncio.run(run()) == [True, True, False]


def test_each_face_refuses_the_connections_of_the_other(url: str, installed: None) -> None:
    async def run() -> None:
        async with psycopg_transaction(url) as connection:
            with pytest.raises(
                InvalidJob, match=r"connection: is asynchronous; use the same verb of jobcontract\.aio"
            ):
                once(connection, KEYED)
        caller = Psycopg(url)
        with pytest.raises(InvalidJob, match="connection: is synchronous"):
            await once_awaited(caller.begin(), KEYED)
        caller.close()

    asyncio.run(run())
