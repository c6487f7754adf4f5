"""The installation: named as one likes, made once, and refused when it does not fit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from jobcontract_postgres.schema import OLDEST_SCHEMA, VERSION
from jobcontract_postgres.statements import channel_name
from psycopg import sql

from jobcontract.contract import State
from jobcontract.effects import create_effects_table
from jobcontract.errors import ConfigError, StoreError
from jobcontract.side_doors import Page
from tests.postgres.conftest import OpenStore
from tests.postgres.stores import Store, jobs

NAMES = [
    "jobs",
    "Jobs",
    "select",
    'with "quotes"',
    "it's",
    "two words",
    "per%cent %s",
    "{schema}",
    "{channel}",
    "задания",
    "a" * 63,
]


def run_every_verb(store: Store) -> None:
    """Each statement once, so that each has met the schema's name."""
    driver = store.driver
    keyed, plain, lost, extra = *jobs(1, idempotency_key="key"), *jobs(3)
    store.register(keyed, plain, lost, extra)
    assert not store.register(keyed)[0].created
    claimed = [each.lease for each in store.claim(3)]
    assert driver.extend(claimed, timedelta(minutes=1))[0].applied
    assert store.complete(claimed[0]) == [True]
    assert store.fail(claimed[1], permanent=True)
    assert driver.release([claimed[2]], timedelta())[0].applied
    assert driver.rescue(10) == (0, 0)
    assert driver.wait(["default"], timedelta(seconds=5)) is True
    driver.pause("default")
    assert driver.stats()[0].paused
    driver.resume("default")
    assert len(driver.jobs(Page())) == 4
    assert len(driver.jobs(Page(idempotency_key="key"))) == 1
    assert driver.cancel([str(extra.id)]) == [State.CANCELLED]
    assert driver.requeue([str(extra.id)]) == [State.READY]
    assert driver.prune(timedelta(), [State.DONE, State.DEAD], 10) == 2
    assert driver.get(claimed[0].job_id) is None


@pytest.mark.parametrize("schema", NAMES)
def test_a_schema_may_have_any_name(open_another: OpenStore, schema: str) -> None:
    store = open_another(schema=schema)
    store.driver.install()
    run_every_verb(store)


def test_nothing_depends_on_the_search_path(
    open_another: OpenStore, connection: psycopg.Connection, postgres_server_role: str
) -> None:
    connection.execute(
        sql.SQL("ALTER ROLE {} SET search_path = ''").format(sql.Identifier(postgres_server_role))
    )
    try:
        store = open_another()
        store.driver.install()
        run_every_verb(store)
    finally:
        connection.execute(
            sql.SQL("ALTER ROLE {} RESET search_path").format(sql.Identifier(postgres_server_role))
        )


@pytest.fixture
def postgres_server_role(connection: psycopg.Connection) -> str:
    return connection.info.user


@pytest.mark.parametrize(
    ("schema", "reason"),
    [("a" * 64, "63 bytes"), ("я" * 32, "63 bytes"), ("", "schema"), ("a\tb", "schema"), ("a$b", "schema")],
)
def test_a_name_that_would_be_cut_or_misread_is_refused(
    open_another: OpenStore, schema: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        open_another(schema=schema)


def test_channels_of_different_schemas_are_different_names() -> None:
    names = [*NAMES, "a" * 62 + "b", "b" * 63]
    channels = {channel_name(name) for name in names}
    assert len(channels) == len(set(names))
    assert all(len(channel.encode()) <= 63 for channel in channels)


def test_two_installations_in_one_database_do_not_meet(open_another: OpenStore) -> None:
    ours, theirs = open_another(), open_another()
    for store in (ours, theirs):
        store.driver.install()
    (made,) = jobs(1, idempotency_key="key")
    ours.register(made)
    assert theirs.claim(10) == []
    assert theirs.driver.get(str(made.id)) is None
    assert theirs.register(*jobs(1, idempotency_key="key"))[0].created


def test_an_installation_does_not_hear_another_ones_jobs(open_another: OpenStore) -> None:
    ours, theirs = open_another(), open_another()
    for store in (ours, theirs):
        store.driver.install()
    heard: list[bool] = []
    waiting = threading.Thread(
        target=lambda: heard.append(theirs.driver.wait(["default"], timedelta(seconds=3)))
    )
    waiting.start()
    ours.register(*jobs(10))
    waiting.join()
    assert heard == [False]


# Installing ------------------------------------------------------------------------------------------------


def test_installing_again_does_nothing(store: Store) -> None:
    assert store.driver.install() == []
    assert store.driver.install(dry_run=True) == []


def test_a_dry_run_shows_what_an_installation_does_and_does_none_of_it(
    open_another: OpenStore, connection: psycopg.Connection
) -> None:
    store = open_another()
    steps = store.driver.install(dry_run=True)
    with pytest.raises(StoreError, match="jobctl init"):
        store.claim()
    assert store.driver.install() == steps
    shown = open_another()
    for step in shown.driver.install(dry_run=True):
        connection.execute(step.statements.encode())
    assert all(step.statements.rstrip().endswith(";") for step in steps)


def test_many_install_at_once(open_another: OpenStore) -> None:
    schema = f"test_many_{id(open_another)}"
    stores = [open_another(schema=schema) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        installing = [pool.submit(store.driver.install) for store in stores]
        done = [step.title for each in installing for step in each.result()]
    assert len(done) == len(set(done)), "each step was done once"
    run_every_verb(stores[0])


def test_an_installation_interrupted_in_the_middle_leaves_nothing_half_done(
    open_another: OpenStore, connection: psycopg.Connection
) -> None:
    """Each migration is one transaction, with its own record in it."""
    store = open_another()
    connection.execute(store.sql("CREATE SCHEMA OURS"))
    connection.execute(store.sql("CREATE VIEW OURS.jobs AS SELECT 1"))  # in the way of the last statement
    with pytest.raises(StoreError, match="already exists"):
        store.driver.install()
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", (store.sql("OURS").decode(),)
    ).fetchall()
    assert rows == [("jobs",)]


def test_the_effects_table_of_an_application_is_taken_over(
    open_another: OpenStore, connection: psycopg.Connection
) -> None:
    """`create_effects_table` may have been there first."""
    store = open_another()
    with connection.transaction():
        create_effects_table(connection, schema=store.schema)
    store.driver.install()
    run_every_verb(store)


# Fitting ---------------------------------------------------------------------------------------------------


VERBS: dict[str, Callable[[Store], object]] = {
    "register": lambda store: store.register(*jobs(1)),
    "claim": lambda store: store.claim(),
    "stats": lambda store: store.driver.stats(),
}
EACH_VERB = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


@EACH_VERB
def test_a_missing_schema_names_the_command_that_makes_it(
    open_another: OpenStore, verb: Callable[[Store], object]
) -> None:
    with pytest.raises(StoreError, match="does not hold a jobcontract installation; run `jobctl init`"):
        verb(open_another())


@EACH_VERB
def test_an_older_schema_names_the_command_that_upgrades_it(
    store: Store, connection: psycopg.Connection, verb: Callable[[Store], object]
) -> None:
    connection.execute(store.sql("UPDATE OURS.schema_version SET version = version - %s"), (VERSION,))
    with pytest.raises(
        StoreError, match=f"has version 0 and this jobcontract needs {OLDEST_SCHEMA}; run `jobctl init`"
    ):
        verb(store)


@EACH_VERB
def test_a_newer_schema_asks_for_a_newer_package(
    store: Store, connection: psycopg.Connection, verb: Callable[[Store], object]
) -> None:
    connection.execute(store.sql("INSERT INTO OURS.schema_version VALUES (9999, 'from the future')"))
    with pytest.raises(StoreError, match=r"has version 9999, and this .* knows .*; upgrade the package"):
        verb(store)
    with pytest.raises(StoreError, match="upgrade the package"):
        store.driver.install()


def test_a_schema_that_was_dropped_meanwhile_is_said(store: Store, connection: psycopg.Connection) -> None:
    store.claim()
    connection.execute(store.sql("DROP SCHEMA OURS CASCADE"))
    for _ in range(2):
        with pytest.raises(StoreError, match="run `jobctl init`"):
            store.claim()
    store.driver.install()
    assert store.claim() == []


def test_the_capabilities_need_no_installation(open_another: OpenStore) -> None:
    """`jobctl backends` shows what a store can do before there is one."""
    assert open_another().driver.capabilities.store.startswith("PostgreSQL ")


def test_a_worker_may_not_have_the_right_to_make_partitions(
    open_another: OpenStore, store: Store, connection: psycopg.Connection
) -> None:
    """It runs all the same: what ends goes into the safety net, and `jobctl init` is the owner's."""
    role = f"worker_{id(store)}"
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'".encode())
    try:
        connection.execute(store.sql(f"GRANT USAGE ON SCHEMA OURS TO {role}"))
        connection.execute(
            store.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA OURS TO {role}")
        )
        _drop_partitions(store, connection)
        worker = open_another(schema=store.schema, role=role)
        store.register(*jobs(1))
        assert worker.driver.rescue(10) == (0, 0)
        assert worker.complete(worker.claim_one()) == [True]
        rows = connection.execute(store.sql("SELECT count(*) FROM OURS.done_jobs_rest")).fetchall()
        assert rows == [(1,)]
    finally:
        connection.execute(f"DROP OWNED BY {role}".encode())
        connection.execute(f"DROP ROLE {role}".encode())


def _drop_partitions(store: Store, connection: psycopg.Connection) -> None:
    names = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass"
        " AND inhrelid::regclass::text NOT LIKE '%%rest'",
        (store.sql("OURS.done_jobs").decode(),),
    ).fetchall()
    for (name,) in names:
        connection.execute(f"DROP TABLE {name}".encode())
