"""What every test can ask for: real servers, by fixture."""

from __future__ import annotations

import signal

from tests.servers.fixtures import (
    pg_cron_programs,
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
    "pg_cron_programs",
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

# A shell has what it starts with `&` ignore Ctrl-C, and that is inherited: no program that a test interrupts
# would notice. With a handler here the programs that we start get the default again.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
