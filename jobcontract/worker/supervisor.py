"""Several worker processes as one: started together, restarted when they die, stopped together.

The supervisor talks to each child through a pipe and not with signals. A service manager sends its SIGTERM to
the supervisor *and* to the children; were it passed on as a second signal, every stop would be one without
grace. And the pipe says one thing that no signal can: when the supervisor is killed, its end closes, and the
children stop by themselves.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType

from jobcontract.backoff import Backoff
from jobcontract.errors import ConfigError
from jobcontract.worker.worker import LONGEST_DEAFNESS, Worker

log = logging.getLogger("jobcontract.worker")

_PIPE_VARIABLE = "JOBCTL_SUPERVISOR_PIPE"  # not JOBCONTRACT_*: those are settings
_STOP, _STOP_NOW = b"s", b"n"
_RESTARTS = Backoff(base=timedelta(seconds=1), cap=timedelta(seconds=30), jitter=0.5)
_PROVEN = 60.0
"""Seconds after which a child counts as well started, so that its next death is a first one again."""
_LAST_CHANCE = 10.0
"""Seconds between the order to stop now and kill -9."""

HOPELESS = 2
"""The exit code of a child that can't work as things are: starting it again can't help."""


@dataclass(slots=True)
class _Child:
    number: int
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    started_at: float = 0.0
    deaths: int = 0
    start_at: float = 0.0
    """When to start it next."""


@dataclass(frozen=True, slots=True)
class _Ended:
    child: _Child
    code: int


@dataclass(slots=True)
class Supervisor:
    """Runs `command` as `processes` child processes. The command must end in `follow_supervisor`."""

    command: Sequence[str]
    processes: int
    until_empty: bool = False
    """A child that ends well has nothing left to do; otherwise it is started again, for somebody stopped it.
    """
    _events: queue.SimpleQueue[_Ended | signal.Signals] = field(
        default_factory=queue.SimpleQueue[_Ended | signal.Signals]
    )
    _children: list[_Child] = field(default_factory=list[_Child])
    _stopping: bool = False
    _kill_at: float | None = None
    _code: int = 0

    def run(self) -> int:
        """Run until all children have ended for good; the exit code for the process. Call it in the main
        thread.

        SIGTERM and SIGINT stop the children as they would stop one worker: the first with grace, the second
        at once.
        """
        self._children = [_Child(number) for number in range(1, self.processes + 1)]
        with self._signals():
            for child in self._children:
                self._start(child)
            while any(child.process or self._is_due_later(child) for child in self._children):
                self._take(self._next_event())
        return self._code

    # -- Children ----------------------------------------------------------------------------------

    def _start(self, child: _Child) -> None:
        reading, child.pipe = os.pipe()
        try:
            child.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                pass_fds=(reading,),
                env={**os.environ, _PIPE_VARIABLE: str(reading)},
                # Not in the terminal's foreground group: Ctrl-C is for the supervisor to hear and to pass on.
                process_group=0,
            )
        finally:
            os.close(reading)
        child.started_at = time.monotonic()
        threading.Thread(target=self._await_end, args=(child, child.process), daemon=True).start()
        log.info("started worker process %d of %d: pid %d", child.number, self.processes, child.process.pid)

    def _await_end(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        self._events.put(_Ended(child, process.wait()))

    def _ended(self, child: _Child, code: int) -> None:
        assert child.process is not None
        pid, child.process = child.process.pid, None
        os.close(child.pipe)
        if self._stopping or (code == 0 and self.until_empty):
            return
        if code == HOPELESS:
            self._code = code
            self._stop()
            return
        now = time.monotonic()
        child.deaths = 1 if now - child.started_at >= _PROVEN else child.deaths + 1
        pause = _RESTARTS.delay(child.deaths).total_seconds()
        child.start_at = now + pause
        log.error("worker process %d (pid %d) ended with %s; starting it again in %.1f s",
                  child.number, pid, _words(code), pause)  # fmt: skip

    def _is_due_later(self, child: _Child) -> bool:
        return not self._stopping and child.start_at > 0

    # -- Events ------------------------------------------------------------------------------------

    def _next_event(self) -> _Ended | signal.Signals | None:
        now = time.monotonic()
        instants = [now + LONGEST_DEAFNESS]
        instants += [child.start_at for child in self._children if self._is_due_later(child)]
        if self._kill_at is not None:
            instants.append(self._kill_at)
        try:
            return self._events.get(timeout=max(0.0, min(instants) - now))
        except queue.Empty:
            return None

    def _take(self, event: _Ended | signal.Signals | None) -> None:
        match event:
            case _Ended():
                self._ended(event.child, event.code)
            case signal.Signals():
                if self._stopping:
                    self._stop_now()
                else:
                    self._stop()
            case None:
                self._do_what_is_due()

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            for child in self._children:
                if child.process is not None:
                    log.error("worker process %d does not stop and is killed", child.number)
                    child.process.kill()
        for child in self._children:
            if self._is_due_later(child) and now >= child.start_at:
                child.start_at = 0.0
                self._start(child)

    def _stop(self) -> None:
        self._stopping = True
        self._tell(_STOP)

    def _stop_now(self) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + _LAST_CHANCE
        self._tell(_STOP_NOW)

    def _tell(self, order: bytes) -> None:
        for child in self._children:
            if child.process is not None:
                with suppress(BrokenPipeError):  # it has just ended
                    os.write(child.pipe, order)

    @contextmanager
    def _signals(self) -> Generator[None]:
        def note(number: int, frame: FrameType | None) -> None:
            del frame
            self._events.put(signal.Signals(number))

        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def is_supervised() -> bool:
    """Whether a `Supervisor` started this process: then it is one worker, whatever its options say."""
    return _PIPE_VARIABLE in os.environ


def follow_supervisor(worker: Worker) -> None:
    """In a child: obey the supervisor's orders, and stop when it is gone. Returns at once; does nothing in a
    process that has no supervisor. Raises `ConfigError` when the variable that names the pipe is garbled.
    """
    text = os.environ.pop(_PIPE_VARIABLE, None)
    if text is None:
        return
    try:
        pipe = int(text)
        os.set_inheritable(pipe, False)
    except (ValueError, OSError):
        raise ConfigError(f"{_PIPE_VARIABLE} is set but names no pipe; unset it") from None
    threading.Thread(target=_follow, args=(worker, pipe), name="jobcontract-supervised", daemon=True).start()


def _follow(worker: Worker, pipe: int) -> None:
    while True:
        order = os.read(pipe, 1)
        if order == _STOP_NOW:
            worker.stop_now()
        else:
            worker.stop()
        if not order:
            log.warning("the supervisor is gone; stopping")
            return


def _words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
