"""What statements cost: each reads exact ranges of indexes, whatever else is in the tables."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jobcontract_sqlite import statements
from jobcontract_sqlite.lookup import select_job, select_page

from jobcontract.contract import State
from jobcontract.side_doors import COUNTED_UP_TO, Page
from tests.sqlite.stores import Edit, FileStore

TABLES = ("jobs", "done", "dead", "keys", "queues")
# Counting reads everything that it counts; pages are below.
STATEMENTS = {
    name: sql
    for name, sql in vars(statements).items()
    if name.isupper() and name not in ("STATS", "HIDE", "HIDE_DEAD") and not name.startswith("JOBS_")
} | {"GET": select_job()}
PAGES = {
    "all": Page(),
    "after a cursor": Page(cursor="0"),
    "of a queue": Page(queue="default"),
    "of a kind": Page(kind="extract"),
    "of a queue and a kind": Page(queue="default", kind="extract", cursor="0"),
    "of ready jobs": Page(state=State.READY),
    "of done jobs of a queue": Page(state=State.DONE, queue="default"),
    "of dead jobs": Page(state=State.DEAD),
    "of cancelled jobs of a kind": Page(state=State.CANCELLED, kind="extract"),
}


@pytest.fixture(scope="module", params=["never analyzed", "analyzed when nearly empty", "analyzed when huge"])
def planned(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """A connection whose planner knows what ANALYZE found once, which may be long ago."""
    path = tmp_path_factory.mktemp("plans") / "jobs.db"
    store = FileStore(path)
    store.driver.install()
    store.driver.cancel(store.add())
    store.add(idempotency_key="used")
    store.driver.complete([store.claim()[0].lease])
    store.add(2)
    store.claim()
    store.driver.pause("idle")
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    if request.param != "never analyzed":
        connection.execute("ANALYZE")
    if request.param == "analyzed when huge":
        # Per index: how many rows there are, how many of them share the first column, the first two, ...
        for table, index, line in connection.execute("SELECT tbl, idx, stat FROM sqlite_stat1").fetchall():
            columns = len(line.split()) - 1
            connection.execute(
                "UPDATE sqlite_stat1 SET stat = ? WHERE tbl = ? AND idx IS ?",
                (" ".join(["5000000"] * columns + ["1"]), table, index),
            )
        connection.execute("ANALYZE sqlite_schema")
    yield connection
    connection.close()


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_no_statement_reads_a_table_from_end_to_end(planned: sqlite3.Connection, name: str) -> None:
    assert not scans(plan(planned, STATEMENTS[name]))


@pytest.mark.parametrize("name", PAGES)
def test_no_page_sorts_what_it_reads(planned: sqlite3.Connection, name: str) -> None:
    # A page may scan: it follows the order of the ids and stops at its limit. A sort would read everything.
    assert not [step for step in plan(planned, select_page(PAGES[name])[0]) if "TEMP B-TREE" in step]


@pytest.mark.parametrize("name", ["HIDE", "HIDE_DEAD"])
def test_what_leaves_is_read_along_an_index(planned: sqlite3.Connection, name: str) -> None:
    # As with a page: what there is to move is the whole table, and a batch of it stops at its limit.
    assert not [step for step in plan(planned, getattr(statements, name)) if "TEMP B-TREE" in step]


def test_the_running_jobs_are_found_among_any_backlog(planned: sqlite3.Connection) -> None:
    steps = plan(planned, select_page(Page(state=State.RUNNING))[0])
    assert any("USING INDEX jobcontract_jobs_running" in step for step in steps)


def test_the_check_of_plans_can_fail(planned: sqlite3.Connection) -> None:
    assert scans(plan(planned, "DELETE FROM jobcontract_jobs WHERE kind = :kind"))
    assert scans(
        plan(planned, "SELECT job.id FROM jobcontract_all_jobs AS job JOIN json_each(?) ON job.id = value")
    )


def test_a_claim_costs_the_same_before_a_great_backlog_of_better_future_jobs(
    store: FileStore, edit: Edit
) -> None:
    fill(edit, ready=2_000, future=0)
    small = work_of_a_claim(store.path)
    fill(edit, ready=60_000, future=60_000)
    great = work_of_a_claim(store.path)
    # A deeper index costs a few steps more; walking over the future jobs would cost 60,000 times ten.
    assert great < small * 1.2


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    """The steps of the plan of `sql`."""
    named = dict.fromkeys(re.findall(r":(\w+)", sql))
    steps = connection.execute(f"EXPLAIN QUERY PLAN {sql}", named or (None,) * sql.count("?"))
    return [row[3] for row in steps]


def scans(steps: list[str]) -> list[str]:
    """The steps that read one of our tables from end to end, or build an index for a single use."""
    ours = "|".join([*(f"jobcontract_{table}" for table in TABLES), "jobcontract_all_jobs", "job", "holder"])
    return [step for step in steps if re.match(rf"SCAN ({ours})\b", step) or "AUTOMATIC" in step]


def fill(edit: Edit, *, ready: int, future: int) -> None:
    """Jobs straight into the table: due ones of priority 0, and ones of priority 9 that are due in 2096."""
    edit("DELETE FROM jobcontract_jobs")
    for count, priority, run_at in ((ready, 0, 1), (future, 9, 4_000_000_000_000_000)):
        edit(
            """
            WITH RECURSIVE counter (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM counter WHERE i + 1 < ?1)
            INSERT INTO jobcontract_jobs (
                id, queue, kind, priority, run_at, max_attempts, created_at, input_ref
            )
            SELECT printf('%032d', ?2 * 1000000 + i), 'default', 'extract', ?2, ?3 + i, 5, 1, '{}'
            FROM counter
            WHERE ?1 > 0
            """,
            count,
            priority,
            run_at,
        )


def test_looking_costs_the_same_however_much_there_is(store: FileStore, edit: Edit) -> None:
    """With a cap of 100 in place of `COUNTED_UP_TO`, and once all that is counted is more than that."""
    fill(edit, ready=1_000, future=1_000)
    edit(_FINISH, 1_000)
    (small, rows) = work_of_a_look(store.path, most=100)
    assert rows == [("default", 100, 100, 0, 0, 0, 100, 0)]
    fill(edit, ready=30_000, future=30_000)
    edit(_FINISH, 30_000)
    (great, rows) = work_of_a_look(store.path, most=100)
    assert rows == [("default", 100, 100, 0, 0, 0, 100, 0)]
    assert great < small * 1.2
    assert work_of_a_look(store.path, most=10_000)[0] > small * 5, "the check can fail"


def test_the_numbers_are_counted_up_to_there_and_the_rate_is_of_the_last_ten_seconds(
    store: FileStore, edit: Edit
) -> None:
    edit(_FINISH, COUNTED_UP_TO + 10)
    (row,) = store.driver.stats()
    assert (row.done, row.done_per_second) == (COUNTED_UP_TO + 1, 0)
    store.add(30)
    store.driver.complete([each.lease for each in store.claim(30)])
    (row,) = store.driver.stats()
    assert row.done_per_second == pytest.approx(3.0)


_FINISH = """
    WITH RECURSIVE counter (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM counter WHERE i + 1 < ?1)
    INSERT OR REPLACE INTO jobcontract_done
        (id, queue, kind, priority, run_at, attempt, refunded, max_attempts, created_at, finished_at,
        input_ref)
    SELECT printf('%032d', i), 'default', 'extract', 0, 1, 1, 0, 5, 1, 1, '{}' FROM counter
"""


def work_of_a_look(path: Path, *, most: int) -> tuple[int, list[tuple[object, ...]]]:
    """How many instructions `stats` takes, counting up to `most`; each queue and its counts."""
    rows: list[tuple[object, ...]] = []

    def look(connection: sqlite3.Connection) -> None:
        found = connection.execute(statements.STATS, {"most": most, "lately": 10_000_000})
        rows.extend(row[:8] for row in found)

    return work_of(path, look), rows


def work_of_a_claim(path: Path) -> int:
    """How many instructions of SQLite's virtual machine a claim of 10 takes."""

    def claim(connection: sqlite3.Connection) -> None:
        parameters = {"queues": '["default"]', "limit": 10, "lease": 60_000_000}
        assert len(connection.execute(statements.CLAIM, parameters).fetchall()) == 10

    return work_of(path, claim)


def work_of(path: Path, do: Callable[[sqlite3.Connection], None]) -> int:
    """How many instructions of SQLite's virtual machine `do` takes. Nothing that it does stays."""
    connection = sqlite3.connect(path, isolation_level=None)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.execute("BEGIN IMMEDIATE")
    connection.set_progress_handler(count, 1)
    do(connection)
    connection.set_progress_handler(None, 0)
    connection.execute("ROLLBACK")
    connection.close()
    return steps
