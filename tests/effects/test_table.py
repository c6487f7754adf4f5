"""The table of effects: who makes it, and how it is kept small."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from jobcontract import ConfigError, InvalidJob, Job, get_backend, once
from jobcontract.effects import create_effects_table, prune_effects
from tests.connections.callers import Caller, Psycopg, SQLite
from tests.effects.conftest import Running

EACH_STORE = pytest.mark.parametrize(
    ("store", "kind"), [("postgres", Psycopg), ("sqlite", SQLite)], ids=["postgres", "sqlite"]
)


@EACH_STORE
@pytest.mark.parametrize("order", ["the store first", "the application first"])
def test_a_store_and_an_application_may_share_a_database(
    url: str, kind: Callable[[str], Caller], order: str
) -> None:
    def store() -> None:
        with get_backend(url) as backend:
            backend.install()

    def application() -> None:
        caller = kind(url)
        create_effects_table(caller.begin())
        caller.commit()
        caller.close()

    for step in (store, application) if order == "the store first" else (application, store):
        step()
    caller = kind(url)
    assert once(caller.begin(), Running(Job(kind="embed")))
    caller.commit()
    assert prune(caller, timedelta(0)) == 1
    caller.close()


@EACH_STORE
def test_the_store_makes_the_same_table_as_the_application(
    url: str, kind: Callable[[str], Caller], store: str
) -> None:
    """Otherwise `once` would work beside one store, and not beside the other."""
    with get_backend(url) as backend:
        backend.install()
    caller = kind(url)
    made_by_store = columns(caller, store)
    drop = "DROP TABLE jobcontract_effects" if store == "sqlite" else "DROP TABLE jobcontract.effects"
    connection = caller.begin()
    connection.execute(drop)
    create_effects_table(connection)
    caller.commit()
    assert columns(caller, store) == made_by_store
    assert len(made_by_store) == 3
    caller.close()


@EACH_STORE
def test_creating_it_again_changes_nothing(caller: Caller) -> None:
    connection = caller.begin()
    assert once(connection, Running(Job(kind="embed", idempotency_key="key")))
    create_effects_table(connection)
    assert not once(connection, Running(Job(kind="embed", idempotency_key="key")))
    caller.commit()


@EACH_STORE
def test_pruning_forgets_the_oldest_and_is_bounded(caller: Caller) -> None:
    for number in range(5):
        once(caller.begin(), Running(Job(kind="embed", idempotency_key=str(number))))
        caller.commit()
        caller.close()
    assert prune(caller, timedelta(days=1)) == 0
    assert [prune(caller, timedelta(0), limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert once(caller.begin(), Running(Job(kind="embed", idempotency_key="0")))
    caller.commit()


@EACH_STORE
def test_pruning_refuses_what_makes_no_sense(caller: Caller) -> None:
    connection = caller.begin()
    with pytest.raises(InvalidJob, match=r"^older_than: must not be negative"):
        prune_effects(connection, timedelta(seconds=-1))
    with pytest.raises(InvalidJob, match=r"^limit: must be at least 1, not 0"):
        prune_effects(connection, timedelta(0), 0)
    caller.rollback()


@pytest.mark.parametrize("schema", ["Job Contract", 'quo"ted', "50%", "schéma", "select"])
def test_any_name_of_a_schema_works(url: str, schema: str) -> None:
    caller = Psycopg(url)
    connection = caller.begin()
    create_effects_table(connection, schema=schema)
    assert once(connection, Running(Job(kind="embed")), schema=schema)
    assert prune_effects(connection, timedelta(0), schema=schema) == 1
    caller.commit()
    found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname = %s", (schema,)).fetchall()
    assert found == [(schema,)]
    caller.close()


@pytest.mark.parametrize("schema", ["", "a\x00b", "x" * 64, "é" * 32])
def test_a_name_that_can_not_be_one_is_refused(url: str, schema: str) -> None:
    caller = Psycopg(url)
    with pytest.raises(ConfigError, match=r"^schema: must have 1 to 63 bytes"):
        once(caller.begin(), Running(Job(kind="embed")), schema=schema)
    caller.close()


def prune(caller: Caller, older_than: timedelta, limit: int = 1000) -> int:
    """`prune_effects` in a transaction of its own."""
    forgotten = prune_effects(caller.begin(), older_than, limit)
    caller.commit()
    caller.close()
    return forgotten


def columns(caller: Caller, store: str) -> list[tuple[object, ...]]:
    """Names, types and keys of the table's columns."""
    connection = caller.begin()
    if store == "sqlite":
        sql = "SELECT name, type, \"notnull\", pk FROM pragma_table_info('jobcontract_effects') ORDER BY name"
    else:
        sql = """
            SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                   array_position(i.indkey::smallint[], a.attnum)
            FROM pg_attribute AS a
            JOIN pg_index AS i ON i.indrelid = a.attrelid AND i.indisprimary
            WHERE a.attrelid = 'jobcontract.effects'::regclass AND a.attnum > 0
            ORDER BY a.attname
        """
    found = [tuple(row) for row in connection.execute(sql).fetchall()]
    caller.commit()
    caller.close()
    return found
