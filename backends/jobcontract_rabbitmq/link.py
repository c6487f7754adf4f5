"""A connection that is there when it is needed: made on demand, to whichever host answers, and made anew."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from pydantic import SecretStr

from jobcontract.config import StoreSettings
from jobcontract.errors import ConfigError, StoreError, StoreUnavailable
from jobcontract.url import Host
from jobcontract_rabbitmq.amqp import Connection, ConnectionLost, Endpoint, TurnedAway
from jobcontract_rabbitmq.options import RabbitOptions

_PORT, _TLS_PORT = 5672, 5671


class Target:
    """Where the server is and who we are: taken from the settings once, and checked before anything is
    contacted.
    """

    def __init__(self, settings: StoreSettings, options: RabbitOptions) -> None:
        """Raises `ConfigError` for certificates that can't be read, or that an amqp:// URL has no use for."""
        url = settings.url
        self.where = url.redacted()
        """The servers, for people."""
        self._options = options
        self._vhost = url.path.removeprefix("/") or "/"
        self._hosts = url.hosts or (Host("localhost"),)
        self._user = url.username or "guest"
        self._password = url.password or SecretStr("guest")
        self._tls: ssl.SSLContext | None = None
        if url.scheme == "amqps":
            self._tls = _tls_context(settings.name, options)
        else:
            _refuse_tls_options(settings.name, options)
        self.plaintext_abroad = self._tls is None and not all(_is_local(host.name) for host in self._hosts)

    def endpoints(self, purpose: str) -> list[Endpoint]:
        """One for each host, in the URL's order."""
        options = self._options
        return [
            Endpoint(
                host=host.name or "localhost",
                port=host.port or (_TLS_PORT if self._tls else _PORT),
                vhost=self._vhost,
                user=self._user,
                password=self._password.get_secret_value(),
                heartbeat=options.heartbeat.seconds,
                connect_timeout=options.connect_timeout.total_seconds(),
                silence=options.timeout.total_seconds(),
                purpose=f"jobcontract {purpose}",
                tls=self._tls,
                server_name=options.server_name_indication,
            )
            for host in self._hosts
        ]


class Link:
    """One connection of a driver, for one purpose. Belongs to the loop of the driver's thread."""

    def __init__(self, target: Target, purpose: str) -> None:
        self._target = target
        self._purpose = purpose
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None

    @property
    def connection(self) -> Connection | None:
        """The present one, if it lives."""
        if self._connection is not None and self._connection.lost is None:
            return self._connection
        return None

    async def connect(self) -> Connection:
        """The present connection, or a new one, which is made by one caller for all, and goes on being made
        when that caller's time is over.

        Raises `StoreUnavailable`, or `StoreError` when the server turned us away.
        """
        if (connection := self.connection) is not None:
            return connection
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
            self._connecting.add_done_callback(self._connected)
        try:
            return await asyncio.shield(self._connecting)
        except TurnedAway as error:
            raise StoreError(f"RabbitMQ at {self._target.where}: {error}; {error.remedy}") from None
        except ConnectionLost as error:
            raise StoreUnavailable(f"RabbitMQ at {self._target.where} can't be reached: {error}") from None

    async def _connect(self) -> Connection:
        return await Connection.open(self._target.endpoints(self._purpose))

    def _connected(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def close(self) -> None:
        """Close what is open."""
        if (connection := self.connection) is not None:
            await connection.close()

    def abort(self) -> None:
        """Drop what is open, as a network would. The next `connect` makes a new one."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None


def _tls_context(backend: str, options: RabbitOptions) -> ssl.SSLContext:
    for name in ("cacertfile", "certfile", "keyfile"):
        path = getattr(options, name)
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"backend {backend!r}: {name} names no file: {path}")
    try:
        context = ssl.create_default_context(cafile=options.cacertfile)
        if options.certfile is not None:
            context.load_cert_chain(options.certfile, options.keyfile)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"backend {backend!r}: a certificate can't be read: {error}") from None
    if options.verify == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _refuse_tls_options(backend: str, options: RabbitOptions) -> None:
    for setting in ("cacertfile", "certfile", "keyfile", "server_name_indication"):
        if getattr(options, setting) is not None:
            raise ConfigError(f"backend {backend!r}: {setting} is for amqps:// URLs, and this one is amqp://")


def _is_local(name: str) -> bool:
    return name in ("localhost", "::1") or name.startswith("127.")
