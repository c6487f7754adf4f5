"""A private PostgreSQL cluster."""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, LiteralString, cast
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql

from tests.servers import container
from tests.servers.binaries import Programs, Service, find_programs, reachable_wheel, unprivileged_user
from tests.servers.process import DEFAULT_PASSWORD, Command, NotOurs, Server


class PostgresServer(Server):
    """One cluster, made by `initdb` on the first start, with a superuser who logs in by password (SCRAM)."""

    service: ClassVar[str] = Service.POSTGRES
    not_ready: ClassVar[tuple[type[Exception], ...]] = (psycopg.OperationalError,)

    def __init__(
        self,
        *,
        programs: Programs | None = None,
        directory: Path | None = None,
        fsync: bool = True,
        max_connections: int = 100,
        user: str = "jobcontract",
        password: str = DEFAULT_PASSWORD,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Make the folder; start nothing.

        Args:
            programs: None takes what `find_programs` finds.
            directory: see `Server`; when root runs this, the account postgres must be able to reach it.
            fsync: False for speed: data survive `kill`, but not the machine's end.
            max_connections: of which three are kept for superusers.
            settings: further lines of postgresql.conf; they win over those above.
        """
        programs = programs or find_programs(Service.POSTGRES)
        self._account = None if programs.image else unprivileged_user()
        super().__init__(directory=directory, owner=self._account)
        if self._account is not None and programs.origin.startswith("wheel"):
            programs = reachable_wheel(programs, self._account, self.directory / "install")
        self.programs = programs
        self.user = user
        self.password = password
        self.data = self.directory / "data"
        self._container = container.new_name(self.service)
        self._settings = {
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            "max_connections": str(max_connections),
            "shared_buffers": "64MB",
            # In the data folder, not in /dev/shm, where a killed cluster would leave its segments.
            "dynamic_shared_memory_type": "mmap",
            "lc_messages": "C",
            "log_line_prefix": "%m [%p] %d ",
            **(settings or {}),
        }

    def _command(self) -> Command:
        settings = self._settings
        if self.programs.image is not None:
            return container.run_command(
                self.programs.image,
                *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
                publish={self.port: 5432},
                data="/var/lib/postgresql",
                environment={
                    "POSTGRES_USER": self.user,
                    "POSTGRES_PASSWORD": self.password,
                    "POSTGRES_DB": "postgres",
                    "PGDATA": "/var/lib/postgresql/test/data",
                },
                name=self._container,
            )
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        settings = settings | {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": str(self.directory),
        }
        argv, user = self.programs.argv(
            "postgres",
            "-D",
            str(self.data),
            *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
            directory=self.directory,
            user=self._account,
        )
        # SIGINT is the "fast" shutdown: it doesn't wait for clients. A killed cluster leaves a segment of
        # shared memory to its next start.
        return Command(argv, user=user, stop_signal=signal.SIGINT, clean_end=True)

    def _initialise(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(self.password)
        password_file.chmod(0o644)  # the folder around it is closed
        fast = [] if self._settings["fsync"] == "on" else ["--no-sync"]
        self.programs.run(
            "initdb",
            *("-D", str(self.data), "--username", self.user, "--pwfile", str(password_file)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", *fast),
            directory=self.directory,
            user=self._account,
        )
        password_file.unlink()

    def _handshake(self) -> None:
        self.assert_ours()

    def connect(self, database: str = "postgres", *, autocommit: bool = True) -> psycopg.Connection:
        """A connection of the superuser.

        Raises:
            psycopg.OperationalError: the server is down, paused for over 5 s, or refuses.
        """
        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database,
            autocommit=autocommit,
            connect_timeout=5,
        )

    def assert_ours(self) -> None:
        """Ask the server where its data are.

        Raises:
            NotOurs: not in our folder (or it knows no such user and password: not our server either).
        """
        try:
            with self.connect() as connection:
                row = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise NotOurs(f"the server on port {self.port} does not know our password") from None
            raise
        if self.programs.image is None and (row is None or Path(row[0]).resolve() != self.data.resolve()):
            raise NotOurs(
                f"the server on port {self.port} keeps its data in {row and row[0]}, not {self.data}"
            )

    def url(
        self,
        database: str = "postgres",
        *,
        user: str | None = None,
        password: str | None = None,
        host: str | None = None,
        port: int | None = None,
        **parameters: str,
    ) -> str:
        """A connection URL; of the superuser at this server where nothing else is said.

        Args:
            host, port: of a proxy in front of the server.
            parameters: of libpq, such as `connect_timeout`; quoted here.
        """
        who = f"{quote(user or self.user, safe='')}:{quote(password or self.password, safe='')}"
        where = f"{host or self.host}:{port or self.port}/{quote(database, safe='')}"
        return f"postgresql://{who}@{where}" + (
            # libpq takes a plus sign for a plus sign
            f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
        )

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database and return its name, a new one by default."""
        name = name or f"test_{secrets.token_hex(6)}"
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database and throw out whoever is connected to it."""
        with self.connect() as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

    def dump(self, database: str) -> str:
        """A database as pg_dump writes it: SQL that `restore` takes."""
        options = ["--inserts", "--rows-per-insert=500", f"--username={self.user}", f"--dbname={database}"]
        if self.programs.image is not None:
            return container.execute(self._container, "pg_dump", *options)
        return self.programs.run(
            "pg_dump",
            *(f"--host={self.host}", f"--port={self.port}", *options),
            directory=self.directory,
            user=self._account,
            environment={"PGPASSWORD": self.password},
        )

    def restore(self, dump: str, database: str = "postgres") -> None:
        """Fill an empty database with what `dump` gave."""
        # Newer versions write commands for psql around it.
        statements = "\n".join(line for line in dump.splitlines() if not line.startswith("\\"))
        with self.connect(database) as connection:
            connection.execute(statements.encode())

    def execute(self, statement: LiteralString, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement as the superuser and return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement)
            return cast("list[tuple[object, ...]]", cursor.fetchall()) if cursor.description else []

    def version(self) -> int:
        """As `server_version_num`, e.g. 150012."""
        return int(str(self.execute("SHOW server_version_num")[0][0]))

    def close(self) -> None:
        """End it and remove its data, and the shared memory of a killed cluster with them."""
        self.stop()
        with contextlib.suppress(FileNotFoundError, IndexError):
            key_and_id = (self.data / "postmaster.pid").read_text().splitlines()[6].split()
            subprocess.run(["ipcrm", "--shmem-id", key_and_id[1]], capture_output=True, check=False)
        super().close()
