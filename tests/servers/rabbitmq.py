"""Private RabbitMQ nodes, with their own Erlang port mapper."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import secrets
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import quote

from tests.servers import container
from tests.servers.binaries import Programs, Service, find_programs
from tests.servers.group import Group
from tests.servers.process import DEFAULT_PASSWORD, Command, NotOurs, Server

pika: Any = import_module("pika")  # it ships no types

PLUGINS = ("rabbitmq_management",)
"""For `RabbitServer.api`: a virtual host takes it milliseconds, and `rabbitmqctl` seconds."""


class PortMapper(Server):
    """Erlang's epmd on a port of its own, in the foreground.

    A node that finds none starts one as a daemon, which would stay behind, and serve strangers.
    """

    service: ClassVar[str] = "epmd"

    def __init__(self, programs: Programs) -> None:
        super().__init__()
        self.programs = programs

    def _command(self) -> Command:
        argv, _ = self.programs.argv(
            "epmd", "-port", str(self.port), "-address", self.host, directory=self.directory, user=None
        )
        return Command(argv)

    def _handshake(self) -> None:
        with socket.create_connection(self.address, timeout=5) as connection:
            connection.sendall(b"\x00\x01n")  # the names of the nodes it knows, please
            answer = connection.recv(4)
        if int.from_bytes(answer) != self.port:
            raise NotOurs(f"what answers on port {self.port} is no epmd of that port")


class RabbitServer(Server):
    """One node: own name, cookie, home, configuration, database, logs; a user with a password and a vhost."""

    service: ClassVar[str] = Service.RABBITMQ
    port_names: ClassVar[tuple[str, ...]] = ("client", "distribution", "management")
    start_deadline: ClassVar[float] = 100.0  # 4 s on two idle cores, much more on busy ones
    not_ready: ClassVar[tuple[type[Exception], ...]] = (
        OSError,
        http.client.HTTPException,
        pika.exceptions.AMQPError,
    )

    def __init__(
        self,
        *,
        programs: Programs | None = None,
        directory: Path | None = None,
        user: str = "jobcontract",
        password: str | None = None,
        vhost: str = "/",
        settings: Mapping[str, str] | None = None,
        peer: RabbitServer | None = None,
    ) -> None:
        """Make the folder; start nothing.

        Args:
            programs: None takes what `find_programs` finds.
            password: None makes one, which no other server knows. It can't hold a colon: rabbitmq.conf
                has that for values that are encrypted (4.x).
            vhost: made on the first start; more by `create_vhost`.
            settings: further lines of rabbitmq.conf; they win over those above.
            peer: a running node whose cluster to join on the first start. It lends its port mapper, which
                therefore must live as long as this node.
        """
        self.programs = programs or find_programs(Service.RABBITMQ)
        super().__init__(directory=directory)
        self.user: str = user if peer is None else peer.user
        self.password: str = password or (
            peer.password if peer else DEFAULT_PASSWORD.replace(":", "?") + secrets.token_hex(4)
        )
        self.vhost = vhost
        self.node = f"jobcontract-{secrets.token_hex(4)}@localhost"
        self.cookie: str = secrets.token_hex(16) if peer is None else peer.cookie
        self._peer = peer
        self._settings = dict(settings or {})
        self._container = container.new_name(self.service)
        self._own_mapper = PortMapper(self.programs) if peer is None and not self.programs.image else None
        self._mapper: PortMapper | None = self._own_mapper if peer is None else peer._mapper

    def start(self) -> Self:
        if self._own_mapper is not None:
            self._own_mapper.start()
        return super().start()

    def stop(self) -> None:
        super().stop()
        if self._own_mapper is not None:
            self._own_mapper.stop()

    def kill(self) -> None:
        super().kill()
        if self._own_mapper is not None:
            self._own_mapper.kill()

    def close(self) -> None:
        super().close()
        if self._own_mapper is not None:
            self._own_mapper.close()

    def pids(self) -> set[int]:
        return super().pids() | (self._own_mapper.pids() if self._own_mapper is not None else set[int]())

    def _command(self) -> Command:
        credentials = {
            "default_user": self.user,
            "default_pass": self.password,
            "default_vhost": self.vhost,
            "default_user_tags.administrator": "true",
        }
        if self.programs.image is not None:
            configuration = self._write_configuration(credentials | self._settings)
            configuration.chmod(0o644)
            self.directory.chmod(0o755)
            return container.run_command(
                self.programs.image,
                publish={self.port: 5672, self.ports["management"]: 15672},
                data="/var/lib/rabbitmq",
                environment={"RABBITMQ_NODENAME": self.node},
                name=self._container,
                options=["--volume", f"{configuration}:/etc/rabbitmq/conf.d/99-tests.conf:ro"],
            )
        settings = credentials | {
            "listeners.tcp.1": f"{self.host}:{self.port}",
            "management.tcp.ip": self.host,
            "management.tcp.port": str(self.ports["management"]),
            "log.console": "true",
            "log.console.level": "info",
            "log.file": "false",
        }
        if self._peer is not None:
            settings |= {
                "cluster_formation.peer_discovery_backend": "classic_config",
                "cluster_formation.classic_config.nodes.1": self._peer.node,
                "cluster_formation.classic_config.nodes.2": self.node,
            }
        self._write_configuration(settings | self._settings)
        (self.directory / "enabled_plugins").write_text(f"[{','.join(PLUGINS)}].\n")
        cookie = self.directory / ".erlang.cookie"
        if not cookie.exists():
            cookie.write_text(self.cookie)
            cookie.chmod(0o400)
        argv, _ = self.programs.argv("server", directory=self.directory, user=None)
        return Command(argv, environment=self._environment(), grace=30.0)

    def _write_configuration(self, settings: Mapping[str, str]) -> Path:
        configuration = self.directory / "rabbitmq.conf"
        configuration.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        return configuration

    def _environment(self) -> dict[str, str]:
        assert self._mapper is not None
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))
        }
        loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
        return inherited | {
            "HOME": str(self.directory),
            "ERL_EPMD_PORT": str(self._mapper.port),
            "ERL_EPMD_ADDRESS": self.host,
            # Else the start script stays in between, as the parent of the Erlang machine.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "advanced.config"),
            "RABBITMQ_CTL_ERL_ARGS": loopback,
            "RABBITMQ_DIST_PORT": str(self.ports["distribution"]),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(self.directory / "feature_flags"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.directory / "generated"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_PID_FILE": str(self.directory / "rabbitmq.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback,
        }

    def _handshake(self) -> None:
        # First without pika, which logs a failure at length.
        socket.create_connection(self.address, timeout=5).close()
        try:
            self.connect().close()
        except pika.exceptions.ProbableAuthenticationError:
            raise NotOurs(f"the server on port {self.port} does not know our password") from None
        self.api("GET", "/overview")

    def connect(self, vhost: str | None = None) -> Any:
        """A pika `BlockingConnection`, whose waits end after 10 s."""
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                host=self.host,
                port=self.port,
                virtual_host=self.vhost if vhost is None else vhost,
                credentials=pika.PlainCredentials(self.user, self.password),
                socket_timeout=5,
                stack_timeout=10,
                blocked_connection_timeout=10,
            )
        )

    def url(
        self,
        vhost: str | None = None,
        *,
        user: str | None = None,
        password: str | None = None,
        host: str | None = None,
        port: int | None = None,
    ) -> str:
        """A connection URL; of the node's own user and vhost where nothing else is said.

        Args:
            host, port: of a proxy in front of the server.
        """
        who = f"{quote(user or self.user, safe='')}:{quote(password or self.password, safe='')}"
        path = quote(self.vhost if vhost is None else vhost, safe="")
        return f"amqp://{who}@{host or self.host}:{port or self.port}/{path}"

    def create_vhost(self, name: str | None = None) -> str:
        """Create a virtual host, open to the node's own user, and return its name, a new one by default."""
        name = name or f"test-{secrets.token_hex(6)}"
        self.api("PUT", f"/vhosts/{quote(name, safe='')}")
        self.api(
            "PUT",
            f"/permissions/{quote(name, safe='')}/{quote(self.user, safe='')}",
            {"configure": ".*", "write": ".*", "read": ".*"},
        )
        return name

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all its queues, and close the connections to it."""
        self.api("DELETE", f"/vhosts/{quote(name, safe='')}")

    def api(self, method: str, path: str, body: object = None) -> Any:
        """One request to the management API; its answer's JSON, or None when that is empty.

        Raises:
            RuntimeError: the answer is an error; the message holds it.
            OSError, http.client.HTTPException: it did not answer.
        """
        token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        with contextlib.closing(
            http.client.HTTPConnection(self.host, self.ports["management"], timeout=10)
        ) as connection:
            connection.request(method, f"/api{path}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path} was answered with {response.status}: {content.decode()}")
        return json.loads(content) if content else None

    def rabbitmqctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl` against this node and return what it wrote. Takes seconds.

        Raises:
            RuntimeError: it failed; the message ends with what it wrote.
        """
        if self.programs.image is not None:
            return container.execute(self._container, "rabbitmqctl", *arguments)
        return self.programs.run(
            "ctl", "--quiet", *arguments, directory=self.directory, environment=self._environment()
        )

    def flush_metadata(self) -> None:
        """Have what was declared on disk, so that a `kill` right now does not undo it. Takes half a second.

        RabbitMQ confirms a declaration before that. Killed within the next two seconds, 3.10 forgets a queue,
        or brings back a quorum queue that never finds a leader.
        """
        self.rabbitmqctl("eval", "mnesia:sync_log(), [ok = dets:sync(Table) || Table <- dets:all()].")

    def version(self) -> tuple[int, ...]:
        """E.g. (3, 10, 8)."""
        answer: str = self.api("GET", "/overview")["rabbitmq_version"]
        return tuple(int(part) for part in answer.split("-")[0].split("+")[0].split("."))


class RabbitCluster(Group[RabbitServer]):
    """Nodes of one cluster, all running; the first one holds the port mapper."""

    def stop(self) -> None:
        self.members.reverse()  # the port mapper last
        super().stop()


def start_cluster(
    *, nodes: int = 3, settings: Mapping[str, str] | None = None, programs: Programs | None = None
) -> RabbitCluster:
    """Start nodes that form one cluster on this host; blocks until all of them answer.

    A node takes seconds of processor time to start, and nothing else: the others start side by side.

    Args:
        nodes: with three, quorum queues survive the loss of one.
        settings: further lines of rabbitmq.conf for each node.
    """
    programs = programs or find_programs(Service.RABBITMQ, in_container=False)
    with contextlib.ExitStack() as cleanup:
        first = cleanup.enter_context(RabbitServer(programs=programs, settings=settings))
        others = [RabbitServer(programs=programs, settings=settings, peer=first) for _ in range(nodes - 1)]
        for other in others:
            cleanup.callback(other.close)
        with ThreadPoolExecutor(max_workers=max(1, len(others))) as threads:
            list(threads.map(RabbitServer.start, others))
        cleanup.pop_all()
        return RabbitCluster([first, *others])
    raise AssertionError("unreachable")
