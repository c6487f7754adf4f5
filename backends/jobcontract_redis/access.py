"""Where the servers of a store are and how to connect to one: the URL and the options, taken apart once."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobcontract.config import StoreSettings
from jobcontract.errors import ConfigError
from jobcontract.url import Host
from jobcontract_redis.options import RedisOptions

REDIS_PORT = 6379
SENTINEL_PORT = 26379


class Address(NamedTuple):
    """One server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Topology(StrEnum):
    """How the servers of a store hang together."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_LARGE = 16_384
"""From how many bytes on a word is sent by itself."""


class Wire(Protocol):
    """What we use of a connection of redis-py: no pool, no retries, no cluster client, whose rules we could
    not see.
    """

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def can_read(self, timeout: float = 0) -> bool: ...
    def pack_commands(self, commands: Sequence[Sequence[object]]) -> list[bytes]: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def read_response(self) -> object: ...
    def fileno(self) -> int: ...


def pack(commands: Iterable[Sequence[object]]) -> list[bytes]:
    """The bytes that ask for `commands`, in pieces: what is large is not copied."""
    packed: list[bytes] = []
    pieces: list[bytes] = []
    for words in commands:
        pieces.append(b"*%d\r\n" % len(words))
        for word in words:
            data = word if type(word) is bytes else str(word).encode()
            if len(data) < _LARGE:
                pieces.append(b"$%d\r\n%b\r\n" % (len(data), data))
                continue
            pieces.append(b"$%d\r\n" % len(data))
            packed += [b"".join(pieces), data]
            pieces = [b"\r\n"]
    packed.append(b"".join(pieces))
    return packed


class _Selectable:
    """A connection that `select` can wait for."""

    def fileno(self) -> int:
        connection = cast(Any, self)  # redis-py has no public way to its socket
        return cast(int, connection._sock.fileno())

    def pack_commands(self, commands: Sequence[Sequence[object]]) -> list[bytes]:
        """As redis-py does, in a third of its time: our words are text, bytes and numbers."""
        return pack(commands)


class _PlainWire(_Selectable, redis.Connection):
    pass


class _EncryptedWire(_Selectable, redis.SSLConnection):
    pass


@dataclass(frozen=True, slots=True)
class Access:
    """How a connection is made, once the address is known. Holds the password, and shows it nowhere."""

    arguments: dict[str, Any]  # Any: redis-py's keyword arguments
    encrypted: bool
    timeout: float
    """In seconds."""

    def open(self, address: Address, within: float | None = None) -> Wire:
        """A connected, authenticated connection. Raises redis-py's errors.

        Connecting, and each answer of the server, may take as long as the timeout of the options, or `within`
        seconds where that is less.
        """
        kind = _EncryptedWire if self.encrypted else _PlainWire
        arguments: dict[str, Any] = self.arguments
        if within is not None and within < self.timeout:
            arguments = arguments | {"socket_timeout": within, "socket_connect_timeout": within}
        wire = cast(Wire, kind(host=address.host, port=address.port, **arguments))
        wire.connect()
        return wire

    def __repr__(self) -> str:
        return f"Access(encrypted={self.encrypted})"


@dataclass(frozen=True, slots=True)
class Location:
    """The servers that a URL names, and how to talk to them."""

    topology: Topology
    addresses: tuple[Address, ...]
    """The server; or the Sentinels; or some nodes of the cluster."""
    service: str
    """What the Sentinels call the group."""
    access: Access
    sentinel_access: Access
    database: int
    where: str
    """The store, as an error names it: without user and password."""

    @property
    def exposed(self) -> bool:
        """Whether passwords and jobs cross a network that is not this machine's own, unencrypted."""
        return not self.access.encrypted and not all(_is_loopback(each.host) for each in self.addresses)


def locate(settings: StoreSettings, options: RedisOptions) -> Location:
    """What `settings` point at. Contacts nothing. Raises `ConfigError`."""
    url = settings.url
    scheme, _, kind = url.scheme.partition("+")
    topology = Topology(kind) if kind else Topology.SINGLE
    encrypted = scheme == "rediss"
    default_port = SENTINEL_PORT if topology is Topology.SENTINEL else REDIS_PORT
    addresses = tuple(_address(host, default_port) for host in url.hosts) or (
        Address("localhost", default_port),
    )
    if topology is Topology.SINGLE and len(addresses) > 1:
        raise ConfigError(
            f"backend {settings.name!r}: a {url.scheme} URL has one host; for several write "
            f"{scheme}+sentinel:// or {scheme}+cluster://"
        )
    service, database = _path(settings, topology)
    timeout = options.timeout.total_seconds()
    common: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "socket_keepalive": True,
        "socket_keepalive_options": _keepalive(timeout),
        "retry": Retry(NoBackoff(), 0),  # a script whose answer was lost must not run again
        "protocol": 2,
        "decode_responses": False,
        **_tls(settings, options, encrypted=encrypted),
    }
    password = url.password.get_secret_value() if url.password else None
    sentinel_password = options.sentinel_password.get_secret_value() if options.sentinel_password else None
    return Location(
        topology=topology,
        addresses=addresses,
        service=service,
        access=Access(
            {**common, "db": database, "username": url.username, "password": password}, encrypted, timeout
        ),
        sentinel_access=Access(
            {**common, "username": options.sentinel_username, "password": sentinel_password},
            encrypted,
            timeout,
        ),
        database=database,
        where=f"Redis at {','.join(map(str, addresses))}" + (f" (service {service!r})" if service else ""),
    )


def _address(host: Host, default_port: int) -> Address:
    return Address(host.name or "localhost", host.port or default_port)


def _path(settings: StoreSettings, topology: Topology) -> tuple[str, int]:
    """The service of the Sentinels and the number of the database."""
    url = settings.url
    parts = [part for part in url.path.removeprefix("/").split("/") if part]
    service = ""
    if topology is Topology.SENTINEL:
        if not parts:
            raise ConfigError(
                f"backend {settings.name!r}: a {url.scheme} URL names the service behind its hosts: "
                f"{url.scheme}://host1,host2/mymaster/0"
            )
        service = parts.pop(0)
    if len(parts) > 1 or (parts and not (parts[0].isascii() and parts[0].isdigit() and len(parts[0]) < 6)):
        raise ConfigError(
            f"backend {settings.name!r}: the path of a {url.scheme} URL ends with a database number"
        )
    database = int(parts[0]) if parts else 0
    if topology is Topology.CLUSTER and database:
        raise ConfigError(f"backend {settings.name!r}: a cluster has database 0 only")
    return service, database


def _tls(settings: StoreSettings, options: RedisOptions, *, encrypted: bool) -> dict[str, Any]:
    if not encrypted:
        given = [name for name in ("tls_ca", "tls_cert", "tls_key") if getattr(options, name) is not None]
        if given:
            raise ConfigError(
                f"backend {settings.name!r}: {given[0]!r} is set, and the URL is not encrypted; write rediss"
            )
        return {}
    if (options.tls_cert is None) != (options.tls_key is None):
        raise ConfigError(f"backend {settings.name!r}: 'tls_cert' and 'tls_key' belong together; set both")
    for name in ("tls_ca", "tls_cert", "tls_key"):
        path = getattr(options, name)
        if path is not None and not os.access(path, os.R_OK):
            raise ConfigError(f"backend {settings.name!r}: the file of {name!r} can't be read: {path}")
    return {
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,
        "ssl_ca_certs": str(options.tls_ca) if options.tls_ca else None,
        "ssl_certfile": str(options.tls_cert) if options.tls_cert else None,
        "ssl_keyfile": str(options.tls_key) if options.tls_key else None,
    }


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, of which only a resolver knows more
        return False


def _keepalive(timeout: float) -> dict[int, int]:
    """A peer that is gone without a word is noticed while nothing is being sent, too."""
    wanted = {
        "TCP_KEEPIDLE": 15,
        "TCP_KEEPINTVL": 5,
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": round(timeout * 1000),
    }
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}
