"""Stores on PostgreSQL, each in a schema of its own, and servers of their own for tests that break them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.postgres.stores import Store, open_store
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer

OpenStore = Callable[..., Store]


@pytest.fixture
def open_another(postgres_server: PostgresServer) -> Generator[OpenStore]:
    """Opens a store with the options it is given, in a schema of its own unless they name one."""
    opened: list[Store] = []

    def open_another(role: str | None = None, **options: str) -> Store:
        """As the role `role`, whose password is its name; None is the superuser."""
        options.setdefault("schema", f"test_{uuid4().hex}")
        opened.append(open_store(postgres_server.url(user=role, password=role), **options))
        return opened[-1]

    yield open_another
    for store in opened:
        store.driver.close()
    with postgres_server.connect() as connection:
        for store in opened:
            connection.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(store.schema))
            )


@pytest.fixture
def store(open_another: OpenStore) -> Store:
    """An installed store."""
    store = open_another()
    store.driver.install()
    return store


@pytest.fixture
def connection(postgres_server: PostgresServer) -> Generator[psycopg.Connection]:
    """A superuser's connection in autocommit mode."""
    with postgres_server.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def module_server(postgres_programs: Programs) -> Generator[PostgresServer]:
    """What `own_server` is made of."""
    with PostgresServer(programs=postgres_programs, fsync=False) as server:
        yield server


@pytest.fixture
def own_server(module_server: PostgresServer) -> PostgresServer:
    """A server that may be stopped and killed, without a store on it."""
    module_server.start()
    module_server.execute("DROP SCHEMA IF EXISTS jobcontract CASCADE")
    return module_server


@pytest.fixture
def own_store(own_server: PostgresServer) -> Generator[Store]:
    """An installed store on `own_server`, whose calls give up after two seconds."""
    with installed(own_server.url(), timeout="2s") as store:
        yield store


@contextmanager
def installed(url: str, **options: str) -> Generator[Store]:
    """An installed store at `url`, closed afterwards."""
    store = open_store(url, **options)
    with closing(store.driver):
        store.driver.install()
        yield store
