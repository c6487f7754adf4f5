"""``jobctl metrics``: an endpoint for Prometheus, and a health probe."""

from __future__ import annotations

import ipaddress
import logging
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from types import FrameType
from typing import TYPE_CHECKING

import click

from jobcontract.cli.command import Command
from jobcontract.cli.exits import CommandFailed
from jobcontract.cli.session import Session, pass_session
from jobcontract.errors import ConfigError

if TYPE_CHECKING:
    from jobcontract.metrics import Exporter

log = logging.getLogger("jobcontract.metrics")

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Address(click.ParamType[tuple[str, int]]):
    """``HOST:PORT``, ``[IPv6]:PORT``."""

    name = "address"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """The two parts."""
        host, colon, port = str(value).rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
            self.fail("must be HOST:PORT, such as 127.0.0.1:9464", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


@click.command(cls=Command, examples=("jobctl metrics --once",))
@click.option(
    "--listen",
    type=Address(),
    default="127.0.0.1:9464",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to serve; port 0 takes a free one.",
)
@click.option("--once", is_flag=True, help="Print the metrics once, for a textfile collector, and end.")
@pass_session
def metrics(session: Session, listen: tuple[str, int], once: bool) -> None:
    """Serve the numbers of the stores to Prometheus.

    Of every configured backend, or of --backend. GET /metrics is for Prometheus; GET /health is a probe: 200
    when every backend can be read, 503 with their names when not. No payload, no key and no error text of a
    job is shown.

    Listens on the loopback interface unless --listen says otherwise: there is no password on it. Runs until
    SIGTERM or Ctrl-C. Needs the extra jobcontract[metrics].
    """
    try:
        from jobcontract.metrics import Exporter
    except ImportError as error:
        raise ConfigError(
            f"jobctl metrics needs prometheus-client ({error}); run: pip install 'jobcontract[metrics]'"
        ) from None
    session.log_to_stderr(usual=logging.INFO)
    names: list[str | None] = (
        [None] if session.backend_name else [*sorted(session.settings.backends)] or [None]
    )
    exporter = Exporter([session.backend(name) for name in names])
    if once:
        click.echo(exporter.text().decode(), nl=False)
        return
    _serve(exporter, listen)


def _serve(exporter: Exporter, listen: tuple[str, int]) -> None:
    try:
        server = _server_of(exporter, listen)
    except OSError as error:
        raise CommandFailed(f"can't listen on {listen[0]}:{listen[1]}: {error.strerror or error}") from None
    with server:
        host, port = server.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        log.info("metrics at http://%s:%d/metrics", shown, port)
        if not ipaddress.ip_address(str(host)).is_loopback:
            log.warning("whoever reaches %s can read the names and numbers of the queues", shown)
        # Stopping waits for the loop, so it can't be done by the thread that the signal interrupts.
        stop = threading.Event()

        def order(number: int, frame: FrameType | None) -> None:
            del number, frame
            stop.set()

        before = {number: signal.signal(number, order) for number in (signal.SIGTERM, signal.SIGINT)}
        serving = threading.Thread(target=server.serve_forever, name="jobcontract-metrics", daemon=True)
        serving.start()
        try:
            while not stop.wait(0.5):
                pass
        finally:
            server.shutdown()
            serving.join()
            for number, handler in before.items():
                signal.signal(number, handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    exporter: Exporter


class _Server6(_Server):
    address_family = AF_INET6


def _server_of(exporter: Exporter, listen: tuple[str, int]) -> _Server:
    server = (_Server6 if ":" in listen[0] else _Server)(listen, _Handler)
    server.exporter = exporter
    return server


class _Handler(BaseHTTPRequestHandler):
    server_version = "jobcontract"
    sys_version = ""
    timeout = 30  # seconds for a client that says nothing
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]  # ours, and no other

    def do_GET(self) -> None:
        """``/metrics``, ``/health``."""
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, _TEXT, self.server.exporter.text())
            case "/health":
                ailing = self.server.exporter.ailing()
                body = "".join(f"{name}: can't be read\n" for name in ailing) or "ok\n"
                self._answer(503 if ailing else 200, _TEXT, body.encode())
            case _:
                self._answer(404, _TEXT, b"see /metrics and /health\n")

    do_HEAD = do_GET

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # the name is that of the base class
        """Requests are no news."""
        log.debug(format, *args)
