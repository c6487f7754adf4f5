"""The server that a store's URL names: the parameters of a connection to it, and how one is made."""

from __future__ import annotations

import ipaddress
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import BaseConnection, IsolationLevel, pq
from psycopg.conninfo import make_conninfo

from jobcontract.config import StoreSettings
from jobcontract.errors import ConfigError, StoreError, StoreUnavailable
from jobcontract.url import Host
from jobcontract_postgres.connection import Connection, within
from jobcontract_postgres.failures import DeadlineExceeded, from_connecting
from jobcontract_postgres.options import PostgresOptions
from jobcontract_postgres.results import UtcLoader

_LIBPQ_WITH_TRUST_STORE = 160000  # sslrootcert=system
_MAX_IDENTIFIER_BYTES = 63
_LIBPQ_OPTIONS = (
    "sslmode", "sslrootcert", "sslcert", "sslkey", "channel_binding", "require_auth", "gssencmode",
    "krbsrvname", "passfile", "target_session_attrs", "load_balance_hosts",
)  # fmt: skip


class Server:
    """Makes connections to the server of one configured store. Making the object contacts nothing."""

    def __init__(self, settings: StoreSettings, options: PostgresOptions) -> None:
        """Raises `ConfigError` for options that contradict each other."""
        self._password = settings.url.password.get_secret_value() if settings.url.password else None
        self._parameters = connection_parameters(settings, options)
        self._warned = False
        self.reached: tuple[str, int, str] | None = None
        """Host, port and database of the last connection that was made."""
        self.where = _describe(settings, options)
        """Hosts and database as people would say it, for errors."""
        self.location = _locate(self._parameters, options)
        """Where the jobs are, with all that libpq fills in; for questions about what is destroyed."""

    def connect(self, seconds: float) -> Connection:
        """A new connection in autocommit mode, within `seconds`.

        Raises `StoreUnavailable` or `StoreError`, without the password.
        """
        try:
            conninfo = make_conninfo("", **self._parameters, connect_timeout=max(2, round(seconds)))
            connection = within(seconds, lambda: Connection.connect(conninfo, autocommit=True))
        except DeadlineExceeded as error:
            raise StoreUnavailable(f"{self.where} {error}", nothing_written=True) from None
        except psycopg.Error as error:
            raise from_connecting(error, self.where, self._password) from None
        except UnicodeError as error:  # from the resolver, about a name that no host can have
            raise StoreError(f"can't connect to {self.where}: {error}") from None
        self.reached = address_of(connection)
        connection.born = time.monotonic()
        # What psycopg's own BEGIN asks for, whatever the database's default is.
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        connection.adapters.register_loader("timestamptz", UtcLoader)
        self._warn_of_plain_text(connection)
        return connection

    def _warn_of_plain_text(self, connection: Connection) -> None:
        if self._warned or connection.pgconn.ssl_in_use or _is_local(connection.info.host):
            return
        self._warned = True
        warnings.warn(
            f"the connection to {self.where} is not encrypted, and the server is not on this "
            "machine; set sslmode=verify-full",
            stacklevel=2,
        )


def address_of(connection: BaseConnection[Any]) -> tuple[str, int, str]:
    """Host, port and database that `connection` reached, as it was told to."""
    info = connection.info
    return info.host, info.port, info.dbname


def _describe(settings: StoreSettings, options: PostgresOptions) -> str:
    hosts = ",".join(map(str, settings.url.hosts)) or options.host or "the default host"
    database = settings.url.path.removeprefix("/")
    return f"PostgreSQL at {hosts}" + (f", database {database!r}" if database else "")


def _locate(parameters: Mapping[str, str | int], options: PostgresOptions) -> str:
    """What libpq makes of `parameters`: a URL may leave the host, the user and the database to its defaults
    and to PG* variables.
    """
    usual = {each.keyword.decode(): each.val for each in pq.Conninfo.get_defaults()}

    def value(keyword: str) -> str:
        default = usual.get(keyword)
        return str(parameters.get(keyword) or (default.decode(errors="replace") if default else ""))

    hosts, ports = (value(keyword).split(",") for keyword in ("host", "port"))
    ports = ports * len(hosts) if len(ports) == 1 else ports
    addresses = ",".join(
        str(Host(host or "the default socket", int(port) if port.isdigit() else None))
        for host, port in zip(hosts, ports, strict=False)
    )
    user = value("user")
    database = value("dbname") or user
    return f"PostgreSQL at {addresses}, database {database!r}, user {user!r}, schema {options.schema_name!r}"


def connection_parameters(settings: StoreSettings, options: PostgresOptions) -> dict[str, str | int]:
    """libpq's parameters. What is not set stays out, so that PG* variables and the password file count."""
    url = settings.url
    if url.hosts and options.host:
        raise ConfigError(
            f"backend {settings.name!r}: the URL has a host and 'host' is set beside it; keep one"
        )
    if len(options.schema_name.encode()) > _MAX_IDENTIFIER_BYTES:
        raise ConfigError(
            f"backend {settings.name!r}: 'schema' has more than {_MAX_IDENTIFIER_BYTES} bytes, "
            "where PostgreSQL would cut it"
        )
    found: dict[str, str | int | None] = {
        "user": url.username,
        "password": url.password.get_secret_value() if url.password else None,
        "dbname": url.path.removeprefix("/") or None,
        "host": ",".join(host.name for host in url.hosts) or options.host,
        "application_name": options.application_name,
        "client_encoding": "UTF8",
        # A second net below the deadline of each call, for what the kernel holds: a peer that is gone.
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": round(options.timeout.total_seconds() * 1000),
        "sslpassword": options.sslpassword.get_secret_value() if options.sslpassword else None,
        **{name: getattr(options, name) for name in _LIBPQ_OPTIONS},
    }
    if any(host.port for host in url.hosts):
        found["port"] = ",".join(str(host.port or "") for host in url.hosts)
    elsewhere = not all(_is_local(host.name) for host in url.hosts)
    if elsewhere and not options.sslmode and "PGSSLMODE" not in os.environ:
        found["sslmode"] = "verify-full"
        if not options.sslrootcert and not _has_own_root() and pq.version() >= _LIBPQ_WITH_TRUST_STORE:
            found["sslrootcert"] = "system"
    return {name: value for name, value in found.items() if value is not None}


def _has_own_root() -> bool:
    return "PGSSLROOTCERT" in os.environ or Path("~/.postgresql/root.crt").expanduser().exists()


def _is_local(host: str) -> bool:
    """Whether `host` is a socket or a loopback name: traffic that no network sees."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
