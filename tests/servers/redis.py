"""A private Redis (or Valkey) server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, cast
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers import container
from tests.servers.binaries import Programs, Service, find_programs
from tests.servers.process import DEFAULT_PASSWORD, Command, NotOurs, Server


class RedisServer(Server):
    """One server with a password; by default with an append-only file, synced every second."""

    service: ClassVar[str] = Service.REDIS
    # Wrong password and "still loading" are kinds of ConnectionError.
    not_ready: ClassVar[tuple[type[Exception], ...]] = (redis.ConnectionError, redis.TimeoutError)

    def __init__(
        self,
        *,
        programs: Programs | None = None,
        directory: Path | None = None,
        appendonly: bool = True,
        appendfsync: Literal["always", "everysec", "no"] = "everysec",
        maxmemory: int = 0,
        password: str = DEFAULT_PASSWORD,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Make the folder; start nothing.

        Args:
            programs: None takes what `find_programs` finds.
            appendonly: False keeps nothing on disk at all.
            maxmemory: in bytes; 0 is no limit. The policy is `noeviction` unless `settings` say otherwise.
            settings: further lines of redis.conf; they win over those above.
        """
        self.programs = programs or find_programs(Service.REDIS)
        super().__init__(directory=directory)
        self.password = password
        self._configuration = self.directory / "redis.conf"
        self._container = container.new_name(self.service)
        self._settings = {
            "requirepass": password,
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": appendfsync,
            "save": "",
            "maxmemory": str(maxmemory),
            "maxmemory-policy": "noeviction",
            **(settings or {}),
        }

    def _command(self) -> Command:
        if self.programs.image is not None:
            return container.run_command(
                self.programs.image,
                "redis-server",
                *(word for key, value in self._settings.items() for word in (f"--{key}", value)),
                publish={self.port: 6379},
                data="/data",
                environment={},
                name=self._container,
            )
        settings = {**self._placement(), **self._settings}
        self._configuration.write_text(
            "".join(f"{key} {_quoted(value)}\n" for key, value in settings.items())
        )
        return Command(
            self.programs.argv("server", str(self._configuration), directory=self.directory, user=None)[0]
        )

    def _placement(self) -> dict[str, str]:
        return {
            "bind": self.host,
            "port": str(self.port),
            "dir": str(self.directory),
            "daemonize": "no",
        }

    def _handshake(self) -> None:
        self.assert_ours(timeout=1.0)
        self.ask("PING")  # refused while it is still loading its data; INFO is not

    def client(self, database: int = 0, *, timeout: float = 5.0) -> redis.Redis:
        """A client that never retries.

        Args:
            timeout: seconds, to connect and for each answer.
        """
        return redis.Redis(
            host=self.host,
            port=self.port,
            db=database,
            password=self.password or None,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )

    def ask(self, command: str, *arguments: str | int) -> Any:
        """Send one command over a connection of its own; the answer as redis-py decodes it."""
        with self.client() as client:
            # redis-py leaves the type of an answer open, which would spread to whatever is made of it.
            return cast(Any, client).execute_command(command, *arguments)

    def information(self, section: str, *, timeout: float = 5.0) -> dict[str, Any]:
        """A section of INFO."""
        with self.client(timeout=timeout) as client:
            return dict(cast(Any, client).info(section))

    def assert_ours(self, *, timeout: float = 5.0) -> None:
        """Ask the server for the configuration file it was started with.

        Raises:
            NotOurs: not ours (or it knows no such password: not our server either).
        """
        try:
            information = self.information("server", timeout=timeout)
        except redis.AuthenticationError:
            raise NotOurs(f"the server on port {self.port} does not know our password") from None
        if self.programs.image is None and information["config_file"] != str(self._configuration):
            raise NotOurs(
                f"the server on port {self.port} runs with {information['config_file']!r},"
                f" not with {self._configuration}"
            )

    def url(
        self,
        database: int = 0,
        *,
        password: str | None = None,
        host: str | None = None,
        port: int | None = None,
    ) -> str:
        """A connection URL.

        Args:
            host, port: of a proxy in front of the server.
        """
        secret = quote(password or self.password, safe="")
        return f"redis://:{secret}@{host or self.host}:{port or self.port}/{database}"


def _quoted(value: str) -> str:
    """A value as redis.conf reads it; numbers, words and pairs of them stay bare."""
    if value and all(part.replace("-", "").replace(".", "").isalnum() for part in value.split(" ")):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
