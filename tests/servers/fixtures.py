"""Servers for tests, asked for by fixture: one of each for the whole run, started when first needed.

A test that does more to a server than use a database, a virtual host or a key prefix of its own (kills it,
pauses it, fills it) starts one of its own: `with PostgresServer(programs=postgres_programs) as server`.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.servers.binaries import Programs, Service, ServiceMissing, find_programs
from tests.servers.debian13 import debian13_programs
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

ALLOW_MISSING = "--allow-missing-services"
SERVERS = "--servers"
FOUND, DEBIAN13, DEBIAN13_VALKEY = "found", "debian13", "debian13-valkey"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        ALLOW_MISSING,
        action="store_true",
        help="skip the tests whose server can't be had on this machine, instead of failing them",
    )
    parser.addoption(
        SERVERS,
        choices=[FOUND, DEBIAN13, DEBIAN13_VALKEY],
        default=FOUND,
        help="which servers to test with: those of this machine, or Debian 13's in a folder (takes root)",
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for what will be needed, and install it, before any test's time limit runs."""
    if session.config.option.collectonly:
        return
    wanted = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    for service in Service:
        if f"{service}_programs" in wanted:
            try:
                _programs(session.config, service)
            except ServiceMissing:
                continue  # its fixture says so, test by test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _missing_service_skips(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _missing_service_skips(item))


def _missing_service_skips(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    except ServiceMissing as missing:
        if item.config.getoption(ALLOW_MISSING):
            pytest.skip(str(missing))
        raise


def _programs(config: pytest.Config, service: Service) -> Programs:
    servers = str(config.getoption(SERVERS))
    if servers == FOUND:
        return find_programs(service)
    return debian13_programs(service, valkey=servers == DEBIAN13_VALKEY)


@pytest.fixture(scope="session")
def postgres_programs(request: pytest.FixtureRequest) -> Programs:
    return _programs(request.config, Service.POSTGRES)


@pytest.fixture(scope="session")
def redis_programs(request: pytest.FixtureRequest) -> Programs:
    return _programs(request.config, Service.REDIS)


@pytest.fixture(scope="session")
def rabbitmq_programs(request: pytest.FixtureRequest) -> Programs:
    return _programs(request.config, Service.RABBITMQ)


@pytest.fixture(scope="session")
def pgbouncer_programs(request: pytest.FixtureRequest) -> Programs:
    return _programs(request.config, Service.PGBOUNCER)


@pytest.fixture(scope="session")
def pg_cron_programs(request: pytest.FixtureRequest) -> Programs:
    return _programs(request.config, Service.PG_CRON)


@pytest.fixture(scope="session")
def postgres_server(postgres_programs: Programs) -> Generator[PostgresServer]:
    """PostgreSQL without fsync: a test of what a power cut leaves starts its own."""
    with PostgresServer(programs=postgres_programs, fsync=False, max_connections=300) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(redis_programs: Programs) -> Generator[RedisServer]:
    """Redis with an append-only file."""
    with RedisServer(programs=redis_programs) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server(rabbitmq_programs: Programs) -> Generator[RabbitServer]:
    """One RabbitMQ node."""
    with RabbitServer(programs=rabbitmq_programs) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer_server(
    pgbouncer_programs: Programs, postgres_server: PostgresServer
) -> Generator[PgBouncerServer]:
    """PgBouncer in transaction mode in front of `postgres_server`."""
    with PgBouncerServer(postgres_server, programs=pgbouncer_programs) as server:
        yield server
