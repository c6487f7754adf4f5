"""A private PgBouncer in transaction mode."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import psycopg

from tests.servers.binaries import Programs, Service, find_programs, unprivileged_user
from tests.servers.postgres import PostgresServer
from tests.servers.process import Command, NotOurs, Server


class PgBouncerServer(Server):
    """A pooler for every database of one PostgreSQL server, with that server's user and password.

    In transaction mode a client keeps its server connection for a transaction and no longer: what belongs to
    a session (LISTEN, SET, advisory session locks, prepared statements before 1.21) is lost in between.
    """

    service: ClassVar[str] = Service.PGBOUNCER
    not_ready: ClassVar[tuple[type[Exception], ...]] = (psycopg.OperationalError,)

    def __init__(
        self,
        postgres: PostgresServer,
        *,
        programs: Programs | None = None,
        directory: Path | None = None,
        pool_size: int = 5,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Make the folder; start nothing.

        Args:
            postgres: the running server behind it.
            programs: None takes what `find_programs` finds.
            pool_size: server connections for each database, so that clients share them.
            settings: further lines of the section [pgbouncer]; they win over the others.
        """
        self.programs = programs or find_programs(Service.PGBOUNCER)
        self._account = unprivileged_user()
        super().__init__(directory=directory, owner=self._account)
        self.postgres = postgres
        self._settings = {
            "pool_mode": "transaction",
            "auth_type": "scram-sha-256",
            "max_client_conn": "500",
            "default_pool_size": str(pool_size),
            "server_login_retry": "1",
            **(settings or {}),
        }

    def _command(self) -> Command:
        users = self.directory / "users.txt"
        # The password itself: with a SCRAM secret PgBouncer could check clients but not log in to the server.
        users.write_text(f"{_quoted(self.postgres.user)} {_quoted(self.postgres.password)}\n")
        settings = {
            "listen_addr": self.host,
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_file": str(users),
            "admin_users": self.postgres.user,
            **self._settings,
        }
        configuration = self.directory / "pgbouncer.ini"
        configuration.write_text(
            "[databases]\n"
            f"* = host={self.postgres.host} port={self.postgres.port}\n"
            "[pgbouncer]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items())
        )
        for file in (users, configuration):
            file.chmod(0o644)  # the folder around them is closed
        argv, user = self.programs.argv(
            "pgbouncer", str(configuration), directory=self.directory, user=self._account
        )
        # It has nothing to lose, and the signal for an end without waiting differs between its versions.
        return Command(argv, user=user, stop_signal=signal.SIGKILL)

    def _handshake(self) -> None:
        with psycopg.connect(self.url("pgbouncer"), autocommit=True, connect_timeout=5) as console:
            # Its console speaks only the simple protocol.
            rows = psycopg.ClientCursor(console).execute("SHOW CONFIG").fetchall()
        port = next(row[1] for row in rows if row[0] == "listen_port")
        file = next(row[1] for row in rows if row[0] == "auth_file")
        if (port, file) != (str(self.port), str(self.directory / "users.txt")):
            raise NotOurs(f"the pooler on port {self.port} takes its users from {file}")
        with psycopg.connect(self.url(), autocommit=True, connect_timeout=5):
            pass  # the server behind it can be reached

    def url(self, database: str = "postgres", *, host: str | None = None, port: int | None = None) -> str:
        """A connection URL through the pooler.

        Args:
            host, port: of a proxy in front of it.
        """
        return self.postgres.url(database, host=host or self.host, port=port or self.port)


def _quoted(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
