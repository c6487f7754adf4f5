"""One private server process: its life, its directory, its ports, its log."""

from __future__ import annotations

import abc
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.servers.guard import Specification, descendants

LOOPBACK = "127.0.0.1"
DEFAULT_PASSWORD = "p@ss/word:100%"
"""Needs quoting in a URL, and is easily found in an error or a log that should not hold it."""

LOG_TAIL_LINES = 40
STARTS = 5
"""How often a start is tried when its port was taken between picking and binding."""

# Where somebody's real server may be listening, or may want to.
STANDARD_PORTS = frozenset({4369, 5432, 5671, 5672, 6379, 6432, 15672, 16379, 25672, 26379})


class ServerFailed(Exception):
    """A server did not start, or ended on its own; the message ends with the tail of its log."""


class NotOurs(Exception):
    """Something answers on the port, but it is not the server that was started here."""


@dataclass(frozen=True)
class User:
    """An account that a server runs as."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Command:
    """What the guard runs, and how that ends."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    user: User | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 20.0
    """Seconds that the server has to end after `stop_signal`; then it is killed."""
    clean_end: bool = False
    """Whether it is asked to stop, not killed, also when nobody wants its data any more: it would leave
    something outside of its folder."""

    # Only for what runs outside the tree of the guard, a container: how to reach it there.
    kill: Sequence[str] = ()
    pause: Sequence[str] = ()
    resume: Sequence[str] = ()
    afterwards: Sequence[str] = ()
    """Run whenever the process has ended."""
    dispose: Sequence[str] = ()
    """Run when the server's data are removed."""


def free_port(excluding: frozenset[int] = frozenset()) -> int:
    """A port of 127.0.0.1 that nobody listens on now; never a standard one.

    It lies below the ephemeral range where the machine has room there: a port inside that range can be taken
    by any outgoing connection while its server is down for a restart, or the client that waits for the server
    can be given the very port as its own and then talks to itself.
    """
    first_ephemeral = 32768
    with contextlib.suppress(OSError, ValueError):
        first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    low, high = (10_000, first_ephemeral - 1) if first_ephemeral > 12_000 else (10_000, 65_000)
    while True:
        port = random.randint(low, high)
        if port not in STANDARD_PORTS | excluding and not port_is_taken(port):
            return port


def port_is_taken(port: int) -> bool:
    """Whether a listener has the port on 127.0.0.1 (or on every address)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


class GuardedProcess:
    """A server process under its guard (see `tests.servers.guard`). Safe to use from several threads."""

    def __init__(self, command: Command, *, directory: Path, log: Path, remove: bool) -> None:
        """Start it. Blocks until it was started, not until it is ready.

        Raises:
            ServerFailed: the program could not be executed.
        """
        specification = Specification(
            argv=list(command.argv),
            environment=dict(command.environment),
            directory=str(directory),
            log=str(log),
            user=None if command.user is None else command.user.uid,
            group=None if command.user is None else command.user.gid,
            stop_signal=int(command.stop_signal),
            grace=command.grace,
            clean_end=command.clean_end,
            parent=os.getpid(),
            kill=list(command.kill),
            pause=list(command.pause),
            resume=list(command.resume),
            afterwards=list(command.afterwards),
            dispose=list(command.dispose),
            remove=str(directory) if remove else None,
        )
        self._lock = threading.Lock()
        self._finished = False
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("guard.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.exit_status: int | None = None
        self._tell(json.dumps(specification))
        answer, _, detail = self._hear().partition(" ")
        if answer != "started":
            self._finish()
            raise ServerFailed(f"{command.argv[0]} could not be started: {detail or 'its guard died'}")
        self.pid = int(detail)

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.write(line.encode() + b"\n")
            self._guard.stdin.flush()

    def _hear(self) -> str:
        assert self._guard.stdout is not None
        return self._guard.stdout.readline().decode().strip()

    def _finish(self) -> None:
        """Collect the guard, and how the server ended."""
        self._finished = True
        for line in iter(self._hear, ""):
            if line.startswith("ended "):
                self.exit_status = int(line.split()[1])
        self._guard.wait()
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    @property
    def running(self) -> bool:
        """Whether the server's main process lives."""
        with self._lock:
            if not self._finished and self._guard.poll() is not None:
                self._finish()
            return not self._finished

    def wait(self, seconds: float) -> None:
        """Block for at most so long; return at once when the server has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(seconds)

    def pids(self) -> set[int]:
        """The guard, and every process of the server."""
        return {self._guard.pid, *descendants(self._guard.pid)} if self.running else set()

    def order(self, order: str) -> None:
        """Have the guard do something; blocks until it is done.

        Raises:
            ServerFailed: it could not be done.
        """
        with self._lock:
            if self._finished:
                raise ServerFailed(f"the server does not run, so it can't be told to {order}")
            self._tell(order)
            answer = self._hear()
        if answer != "done":
            raise ServerFailed(f"the server could not be told to {order}: {answer or 'it has ended'}")

    def end(self, order: str) -> None:
        """`stop` or `kill`; blocks until no process of the server, nor its guard, is left."""
        with self._lock:
            if not self._finished:
                self._tell(order)
                self._finish()


def _dispose(
    owner: int, processes: list[GuardedProcess], commands: list[Command], directory: Path, remove: bool
) -> None:
    if os.getpid() != owner:  # a fork of ours is leaving; the server is not its to end
        return
    for process, command in zip(processes, commands, strict=True):
        process.end("stop" if command.clean_end else "kill")
        if command.dispose:
            subprocess.run(command.dispose, capture_output=True, check=False)
    if remove:
        shutil.rmtree(directory, ignore_errors=True)


class Server(abc.ABC):
    """A private server: own directory, own ports, own log, gone when this process is gone.

    Life: `start` -> (`stop` | `kill`) -> `start` ... -> `close`. Data live in `directory` until `close`. Also
    a context manager: started on entry, closed on exit.
    """

    service: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]] = ("client",)
    not_ready: ClassVar[tuple[type[Exception], ...]] = (OSError,)
    """What `_handshake` may raise for as long as the server is coming up."""
    start_deadline: ClassVar[float] = 60.0

    def __init__(self, *, directory: Path | None = None, owner: User | None = None) -> None:
        """Make the directory; start nothing.

        Args:
            directory: an existing folder to use and to leave behind; None makes one, which `close` removes.
            owner: the account that the server runs as, to whom the directory is given.
        """
        self._remove = directory is None
        # Not pytest's own temporary folder: that is closed to the account that the server runs as, and
        # too long a path for a Unix socket.
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"jobcontract-{self.service}-"))
        if owner is not None:
            os.chown(self.directory, owner.uid, owner.gid)
        self.log = self.directory / "server.log"
        self.ports: dict[str, int] = {}
        self._processes: list[GuardedProcess] = []
        self._commands: list[Command] = []
        self._finalizer = weakref.finalize(
            self, _dispose, os.getpid(), self._processes, self._commands, self.directory, self._remove
        )

    @property
    def host(self) -> str:
        return LOOPBACK

    @property
    def port(self) -> int:
        """The port that clients connect to; the same for the server's whole life."""
        return self.ports["client"]

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def running(self) -> bool:
        """Whether the main process lives (also while paused)."""
        return bool(self._processes) and self._processes[-1].running

    @property
    def pid(self) -> int:
        """The server's main process."""
        return self._process.pid

    def pids(self) -> set[int]:
        """Every process that exists because of this server; empty when it is down."""
        return self._processes[-1].pids() if self._processes else set()

    @property
    def _process(self) -> GuardedProcess:
        if not self._processes:
            raise RuntimeError(f"the {self.service} server was not started: call start() first")
        return self._processes[-1]

    @abc.abstractmethod
    def _command(self) -> Command:
        """Write what the server needs for its present ports, and say how it is run."""

    @abc.abstractmethod
    def _handshake(self) -> None:
        """Speak the protocol with the server once, logged in.

        Raises:
            NotOurs: another server answered.
            Exception: one of `not_ready` while it is still coming up.
        """

    def start(self) -> Self:
        """Start it; blocks until it answers. Does nothing when it runs.

        Raises:
            ServerFailed: it ended, or did not answer within `start_deadline` seconds.
        """
        if self.running:
            return self
        keep_ports = bool(self.ports)
        for attempt in range(1, STARTS + 1):
            if not keep_ports:
                self.ports.clear()
                for name in self.port_names:
                    self.ports[name] = free_port(frozenset(self.ports.values()))
            command = self._command()
            process = GuardedProcess(command, directory=self.directory, log=self.log, remove=self._remove)
            self._processes[:] = [process]
            self._commands[:] = [command]
            try:
                self._await_ready(process)
            except (ServerFailed, NotOurs) as failure:
                process.end("kill")
                if attempt < STARTS and any(map(port_is_taken, self.ports.values())):
                    continue
                if isinstance(failure, NotOurs):
                    raise ServerFailed(f"{failure}\n{self.log_tail()}") from None
                raise
            except BaseException:
                process.end("kill")
                raise
            return self
        raise AssertionError("unreachable")

    def _await_ready(self, process: GuardedProcess) -> None:
        end = time.monotonic() + self.start_deadline
        reason = "nothing tried"
        while True:
            process.wait(0.03)
            if not process.running:
                raise ServerFailed(
                    f"the {self.service} server ended with status {process.exit_status} before it was ready;"
                    f" its log ends:\n{self.log_tail()}"
                )
            try:
                self._handshake()
            except self.not_ready as error:
                reason = f"{type(error).__name__}: {str(error).strip()}"
            else:
                # Somebody else's server may have answered while ours failed to bind and ended.
                if process.running:
                    return
                raise NotOurs(f"the {self.service} server ended, and another one answers on port {self.port}")
            if time.monotonic() > end:
                raise ServerFailed(
                    f"the {self.service} server did not answer within {self.start_deadline:g} s ({reason});"
                    f" its log ends:\n{self.log_tail()}"
                )

    def stop(self) -> None:
        """Shut it down as an administrator would; data stay. Blocks until every process is gone."""
        for process in self._processes:
            process.end("stop")

    def kill(self) -> None:
        """SIGKILL to every process of it at once; data stay. Blocks until every process is gone."""
        for process in self._processes:
            process.end("kill")

    def pause(self) -> None:
        """SIGSTOP to every process of it: connections stay open and nothing answers."""
        self._process.order("pause")

    def resume(self) -> None:
        """The end of `pause`."""
        self._process.order("resume")

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Paused inside the block, and resumed however the block ends."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def restart(self) -> Self:
        """`stop`, then `start` on the same port with the same data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """End it, in no clean way, and remove its data. Harmless when called again."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.host}:{self.ports.get('client', '?')} in {self.directory}>"

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of what the server wrote."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return "(nothing)"
        return "\n".join(text.splitlines()[-lines:]) or "(nothing)"
