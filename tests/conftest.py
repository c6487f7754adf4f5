"""What every test can ask for: real servers, by fixture."""

from __future__ import annotations

from tests.servers.fixtures import (
    pgbouncer_programs,
    pgbouncer_server,
    postgres_programs,
    postgres_server,
    pytest_addoption,
    pytest_collection_finish,
    pytest_runtest_call,
    pytest_runtest_setup,
    rabbitmq_programs,
    rabbitmq_server,
    redis_programs,
    redis_server,
)

__all__ = [
    "pgbouncer_programs",
    "pgbouncer_server",
    "postgres_programs",
    "postgres_server",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_runtest_call",
    "pytest_runtest_setup",
    "rabbitmq_programs",
    "rabbitmq_server",
    "redis_programs",
    "redis_server",
]
