"""The relay is killed with -9, its connections are cut, the servers restart: nothing is lost."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest
from jobcontract_outbox import ORDERING_KEY

from jobcontract import Job
from tests.outbox.conftest import MakeStage
from tests.outbox.stage import Stage, drain, drain_until, ids, jobs, until
from tests.servers.binaries import Programs
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import Predicate, Proxy, When, contains

BATCH = 100
COUNT = 300

CLAIM = contains(b"jobcontract outbox claim")
LANES = contains(b"jobcontract outbox lanes")
DELETE = contains(b"jobcontract outbox delete")
COMMIT = contains(b"jobcontract outbox delete", b"COMMIT")
"""The COMMIT behind the first DELETE: the predicate sees all that the connection has sent."""


@pytest.fixture
def host_proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    """Stands between the relay and the outbox's database."""
    with Proxy(postgres_server.address) as proxy:
        yield proxy


@pytest.fixture
def stage(make_stage: MakeStage, postgres_url: str, rabbit_url: str) -> Stage:
    """RabbitMQ behind an outbox in PostgreSQL: the producer's and the worker's view."""
    return make_stage(postgres_url, rabbitmq=rabbit_url)


@pytest.fixture
def relays(
    make_stage: MakeStage, stage: Stage, host_proxy: Proxy, postgres_server: PostgresServer, rabbit_url: str
) -> Stage:
    """The same, as the relay sees it."""
    database = stage.host_url.rpartition("/")[2]
    proxied = postgres_server.url(database, host=host_proxy.host, port=host_proxy.port)
    return make_stage(f"{proxied}?timeout=3", install=False, rabbitmq=rabbit_url)


@pytest.mark.parametrize("when", [When.BEFORE_REQUEST, When.BEFORE_REPLY], ids=["before", "behind"])
@pytest.mark.parametrize(
    "statement", [CLAIM, LANES, DELETE, COMMIT], ids=["claim", "lanes", "delete", "commit"]
)
def test_a_relay_killed_at_any_statement_loses_nothing(
    stage: Stage, relays: Stage, host_proxy: Proxy, statement: Predicate, when: When
) -> None:
    made = jobs(COUNT)
    stage.backend().register_many(made)
    with relays.process("relay", "--batch", str(BATCH)) as relay:
        killed = (
            host_proxy.cut_next_reply(statement, reply=_killing(relay))
            if when is When.BEFORE_REPLY
            else host_proxy.cut_next_request(lambda sent: statement(sent) and _killing(relay)(sent))
        )
        killed.wait(60)
        assert relay.wait() == -signal.SIGKILL
    until(lambda: stage.publish() == 0 and stage.status().pending == 0)
    claims = drain_until(stage.backend(), COUNT)
    assert {claim.job.id for claim in claims} == {job.id for job in made}
    assert len(claims) <= COUNT + BATCH


STATEMENTS = (
    *("claim", "lanes", "lock", "lane_rows", "delete", "refuse", "next_due", "prune"),
    *("has_versions", "read_version", "status", "remember_target"),
)
"""All that a relay says to the outbox's database."""


def several_kinds(stage: Stage) -> list[Job]:
    """Jobs for which a relay needs all of its statements; the last one is refused."""
    made = [*jobs(50), *jobs(20, headers={ORDERING_KEY: "a"}), Job(kind="work")]
    stage.backend().register_many(made)
    stage.sql("UPDATE {outbox} SET envelope = 'no job' WHERE job_id = %s", str(made[-1].id))
    return made


@pytest.mark.slow
def test_these_are_all_statements_of_a_relay(stage: Stage, relays: Stage, host_proxy: Proxy) -> None:
    several_kinds(stage)
    seen: set[str] = set()

    def note(sent: bytes) -> bool:
        seen.update(found.decode() for found in re.findall(rb"jobcontract outbox (\w+)", sent))
        return False

    host_proxy.cut_next_request(note)
    with relays.process("relay", "--batch", "20"):
        until(lambda: "prune" in seen, 150)
    host_proxy.pass_all()
    assert seen == set(STATEMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("when", [When.BEFORE_REQUEST, When.BEFORE_REPLY], ids=["before", "behind"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_relay_killed_at_each_of_its_statements_loses_nothing(
    stage: Stage, relays: Stage, host_proxy: Proxy, statement: str, when: When
) -> None:
    *made, refused = several_kinds(stage)
    fits = contains(f"jobcontract outbox {statement} ".encode())
    with relays.process("relay", "--batch", "20") as relay:
        killed = (
            host_proxy.cut_next_reply(fits, reply=_killing(relay))
            if when is When.BEFORE_REPLY
            else host_proxy.cut_next_request(lambda sent: fits(sent) and _killing(relay)(sent))
        )
        killed.wait(150)
    until(lambda: stage.publish() == 0 and stage.status().due == 0)
    assert stage.sql("SELECT job_id::text, attempts > 0 FROM {outbox}") == [(str(refused.id), True)]
    arrived = drain_until(stage.backend(), len(made))
    assert {claim.job.id for claim in arrived} == {job.id for job in made}
    assert len(arrived) <= len(made) + 2 * 20  # two batches are under way in a backlog
    ordered = [claim.job.id for claim in arrived if claim.job.headers]
    assert list(dict.fromkeys(ordered)) == [job.id for job in made if job.headers]


@pytest.mark.parametrize(
    "statement",
    [contains(b"jobcontract outbox lock "), contains(b"jobcontract outbox lane_rows")],
    ids=["lock", "rows"],
)
def test_a_relay_killed_with_the_jobs_of_a_key_keeps_their_order(
    stage: Stage, relays: Stage, host_proxy: Proxy, statement: Predicate
) -> None:
    made = jobs(100, headers={ORDERING_KEY: "a"})
    stage.backend().register_many(made)
    with relays.process("relay") as relay:
        host_proxy.cut_next_reply(statement, reply=_killing(relay)).wait(60)
    until(lambda: stage.publish() == 0 and stage.status().pending == 0)
    arrived = ids(drain_until(stage.backend(), 100))
    assert list(dict.fromkeys(arrived)) == [job.id for job in made]


def test_a_relay_killed_while_it_counts_a_refusal_counts_it_once(
    stage: Stage, relays: Stage, host_proxy: Proxy
) -> None:
    stage.backend().register(Job(kind="work"))
    stage.sql("UPDATE {outbox} SET envelope = 'no job'")
    with relays.process("relay") as relay:
        refuse = contains(b"jobcontract outbox refuse")
        host_proxy.cut_next_reply(refuse, reply=_killing(relay)).wait(60)
    assert stage.sql("SELECT attempts FROM {outbox}") == [(0,)]
    stage.publish()
    assert stage.sql("SELECT attempts FROM {outbox}") == [(1,)]


def _killing(process: subprocess.Popen[str]) -> Predicate:
    def kill(_: bytes) -> bool:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True

    return kill


@pytest.mark.parametrize(
    "statement", [CLAIM, LANES, DELETE, COMMIT], ids=["claim", "lanes", "delete", "commit"]
)
def test_a_relay_whose_database_connection_is_cut_goes_on(
    stage: Stage, relays: Stage, host_proxy: Proxy, statement: Predicate
) -> None:
    made = jobs(COUNT)
    stage.backend().register_many(made)
    relay = relays.relay(batch=BATCH)
    cut = host_proxy.cut_next_reply(statement)
    relay.start()
    cut.wait(30)
    claims = drain_until(stage.backend(), COUNT)
    until(lambda: stage.status().pending == 0)
    claims += drain(stage.backend())
    assert {claim.job.id for claim in claims} == {job.id for job in made}
    assert len(claims) <= COUNT + BATCH


def test_a_relay_notices_a_silent_database_and_comes_back(
    stage: Stage, relays: Stage, host_proxy: Proxy
) -> None:
    relay = relays.relay()
    (loop,) = relay.loops
    relay.start()
    stage.backend().register(Job(kind="work"))
    drain_until(stage.backend(), 1)
    host_proxy.blackhole()
    until(lambda: loop.fault != "")
    host_proxy.pass_all()
    stage.backend().register(Job(kind="work"))
    drain_until(stage.backend(), 1)
    until(lambda: loop.fault == "")


def test_a_relay_survives_the_restart_of_its_database(
    make_stage: MakeStage, postgres_programs: Programs, redis_url: str
) -> None:
    with PostgresServer(programs=postgres_programs, fsync=False) as server:
        stage = make_stage(server.url(), redis=redis_url)
        relay = stage.relay()
        relay.start()
        for _ in range(2):
            job = Job(kind="work")
            stage.backend().register(job)
            assert ids(drain_until(stage.backend(), 1)) == [job.id]
            server.kill()
            until(lambda: relay.loops[0].fault != "")
            server.start()
        stage.close()


def test_a_database_that_was_dumped_and_restored_into_a_new_cluster_drains(
    make_stage: MakeStage, postgres_programs: Programs, postgres_server: PostgresServer, redis_url: str
) -> None:
    database = postgres_server.create_database()
    made = [Job(kind="work", idempotency_key=str(number)) for number in range(100)]
    old = make_stage(postgres_server.url(database), redis=redis_url)
    old.backend().register_many(made[:50])
    old.publish()
    old.backend().register_many(made[50:])
    dump = postgres_server.dump(database)
    old.close()
    with PostgresServer(programs=postgres_programs, fsync=False) as server:
        server.restore(dump)
        new = make_stage(server.url(), install=False, redis=redis_url)
        assert not new.backend().register(made[0]).created
        assert new.publish() == 50
        late = Job(kind="work")
        assert new.backend().register(late).created
        assert new.publish() == 1
        claims = drain_until(new.backend(), 101)
        assert sorted(ids(claims)) == sorted([*(job.id for job in made), late.id])
        new.close()
    postgres_server.drop_database(database)


def test_what_a_killed_relay_had_leased_goes_when_the_lease_has_run_out(
    make_stage: MakeStage, redis_url: str, tmp_path: object
) -> None:
    stage = make_stage(f"sqlite:///{tmp_path}/outbox.db", redis=redis_url)
    made = jobs(20)
    stage.backend().register_many(made)
    program = f"""
        import os, signal
        from datetime import timedelta
        from pathlib import Path
        from jobcontract.config import load_settings
        from jobcontract_outbox.ends import find_ends
        from jobcontract_outbox.leasing import LeasingSource
        from jobcontract_outbox.statements import Statements
        (ends,) = find_ends(load_settings(Path({str(stage.file)!r})))
        opened = ends.open()
        source = LeasingSource(
            opened.tables, opened.driver.schema, Statements(opened.tables), "redis", 10, timedelta(seconds=3)
        )
        with source.take(10) as batch:
            assert batch.size == 10
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert done.returncode == -signal.SIGKILL
    leased_at = time.monotonic()
    assert stage.publish() == 10
    until(lambda: stage.publish() == 10)
    assert time.monotonic() - leased_at > 1
    assert sorted(ids(drain_until(stage.backend(), 20))) == sorted(job.id for job in made)


KILLED_AT = """
import os, signal, sqlite3, sys
from datetime import timedelta
from jobcontract_outbox.leasing import LeasingSource
LeasingSource.__init__.__defaults__ = (timedelta(seconds=2),)  # instead of a minute
left, connect = int(sys.argv.pop(1)), sqlite3.connect

def count(statement):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def connect_traced(*arguments, **options):
    connection = connect(*arguments, **options)
    connection.set_trace_callback(count)
    return connection

sqlite3.connect = connect_traced
from jobcontract.cli import main
main()
"""
"""`jobctl`, killed when it begins with its n-th statement."""
FEWEST_STATEMENTS = 20


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_relay_killed_at_each_statement_to_a_file_loses_nothing(
    make_stage: MakeStage, redis_url: str, tmp_path: object
) -> None:
    stage = make_stage(f"sqlite:///{tmp_path}/outbox.db", redis=redis_url)
    backend = stage.backend()
    number = 0
    code = -signal.SIGKILL
    while code == -signal.SIGKILL:
        number += 1
        made = [*jobs(5), *jobs(3, headers={ORDERING_KEY: "a"})]
        backend.register_many(made)
        command = [sys.executable, "-c", KILLED_AT, str(number), "relay", "--once", "--batch", "3"]
        code = subprocess.run(command, cwd=stage.folder, check=False, timeout=60).returncode
        until(lambda: stage.publish() == 0 and stage.status().pending == 0)
        arrived = drain_until(backend, len(made))
        assert {claim.job.id for claim in arrived} == {job.id for job in made}
        ordered = [claim.job.id for claim in arrived if claim.job.headers]
        assert list(dict.fromkeys(ordered)) == [job.id for job in made if job.headers]
    assert code == 0
    assert number > FEWEST_STATEMENTS


def test_a_stop_waits_for_the_confirms(
    make_stage: MakeStage, postgres_url: str, proxied_rabbit_url: str, rabbit_proxy: Proxy
) -> None:
    stage = make_stage(postgres_url, rabbitmq=proxied_rabbit_url)
    made = jobs(1000)
    stage.backend().register_many(made)
    with stage.process("relay", "--batch", "100") as relay:
        rabbit_proxy.delay(0.2)
        until(lambda: stage.sql("SELECT count(*) FROM {outbox}") < [(1000,)])
        relay.send_signal(signal.SIGTERM)
        assert relay.wait() == 0
        rabbit_proxy.pass_all()
    left = stage.status().pending
    assert 0 < left < 1000
    claims = drain_until(stage.backend(), 1000 - left)
    assert len(claims) == 1000 - left
    stage.publish()
    claims += drain_until(stage.backend(), left)
    assert sorted(ids(claims)) == sorted(job.id for job in made)
