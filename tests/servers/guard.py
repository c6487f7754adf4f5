"""Keeps one server process, and ends it with everything it started, whatever happens to who asked for it.

Run by `tests.servers.process` as `python -I -S guard.py`. One JSON object on the first line of standard input
says what to run; every further line is an order, answered with one line on standard output.

A parent-death signal alone is not enough for servers: it follows the *thread* that started the child, it is
dropped when the child changes its user, it reaches neither PostgreSQL's backends (each a session of its own)
nor a daemon such as Erlang's epmd, and it leaves a server no chance to remove what it has in shared memory.
So this small process stands in between. It adopts every orphan below it (PR_SET_CHILD_SUBREAPER): that the
server is gone is then a fact, namely that no child is left. And it ends when its parent does, which it sees
as the end of standard input or of the parent's pidfd (a fork of the parent may keep the former open). The
parent-death signal is the net below: it ends the server if this process is killed itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TypedDict, cast

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOPPED_OR_DEAD = frozenset("TtZX")
PAUSE_DEADLINE = 10.0
"""Seconds within which every process must have stopped."""


class Specification(TypedDict):
    """What to run; see `tests.servers.process.Command` for the meaning of each."""

    argv: list[str]
    environment: dict[str, str]
    directory: str
    log: str
    user: int | None
    group: int | None
    stop_signal: int
    grace: float
    clean_end: bool
    parent: int
    kill: list[str]
    pause: list[str]
    resume: list[str]
    afterwards: list[str]
    dispose: list[str]
    remove: str | None


def _prctl() -> Callable[[int, int], int] | None:
    """The system call, loaded before any fork; None where there is none (macOS)."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)

    def call(option: int, argument: int) -> int:
        return int(library.prctl(option, argument, 0, 0, 0))

    return call


def process_table() -> dict[int, tuple[int, str]]:
    """Every process: its parent and the letter of its state."""
    table: dict[int, tuple[int, str]] = {}
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
        )
        for line in listing.stdout.splitlines():
            pid, parent, state = line.split()[:3]
            table[int(pid)] = (int(parent), state[0])
        return table
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # The name, in brackets, may itself hold blanks and brackets: read from behind the last one.
                fields = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
                table[int(entry)] = (int(fields[1]), fields[0])
    return table


def descendants(ancestor: int) -> dict[int, str]:
    """Every process below `ancestor`, with the letter of its state."""
    table = process_table()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, str] = {}
    waiting = [ancestor]
    while waiting:
        for pid in children.get(waiting.pop(), []):
            found[pid] = table[pid][1]
            waiting.append(pid)
    return found


class Guard:
    """One server's keeper: starts it, carries out orders, and never leaves before all of it is gone."""

    def __init__(self, specification: Specification) -> None:
        self.specification = specification
        self.status: int | None = None
        prctl = _prctl()
        if prctl is not None:
            prctl(PR_SET_CHILD_SUBREAPER, 1)

        def die_with_guard() -> None:
            if prctl is not None:
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        user, group = specification["user"], specification["group"]
        with Path(specification["log"]).open("ab") as log:
            self.server = subprocess.Popen(
                specification["argv"],
                env=specification["environment"],
                cwd=specification["directory"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_guard,  # noqa: PLW1509 (this process has one thread)
                user=user,
                group=group,
                extra_groups=None if user is None else [],
                umask=0o077,
            )

    def reap(self) -> None:
        """Collect what has ended, the server's own exit status among it."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._note(*ended)

    def _note(self, pid: int, status: int) -> None:
        if pid == self.server.pid:
            self.status = os.waitstatus_to_exitcode(status)

    def signal_all(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def sweep(self) -> None:
        """Kill everything below this process; return when nothing is left of it."""
        self._aside("kill")
        while True:
            self.signal_all(signal.SIGKILL)
            # Blocks at most until one of those just killed is gone; a child that was forked meanwhile
            # is an orphan of ours by then, and falls in the next round.
            try:
                self._note(*os.waitpid(-1, 0))
            except ChildProcessError:
                return

    def pause(self) -> None:
        """Stop every process of the server, also one that is forked while this goes on.

        Raises:
            TimeoutError: one of them does not stop (it waits for a device).
        """
        if self._aside("pause"):
            return
        end = time.monotonic() + PAUSE_DEADLINE
        while running := [
            pid for pid, state in descendants(os.getpid()).items() if state not in STOPPED_OR_DEAD
        ]:
            if time.monotonic() > end:
                raise TimeoutError(f"not stopped after {PAUSE_DEADLINE:g} s: {running}")
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            time.sleep(0.001)  # a signal to another process is not carried out at once

    def resume(self) -> None:
        if not self._aside("resume"):
            self.signal_all(signal.SIGCONT)

    def stop(self) -> None:
        """Ask the server to end; end it after the grace period all the same."""
        self.resume()
        self.reap()
        if self.status is None:
            os.kill(self.server.pid, self.specification["stop_signal"])
        end = time.monotonic() + self.specification["grace"]
        while self.status is None and time.monotonic() < end:
            time.sleep(0.01)
            self.reap()
        self.sweep()

    def dispose(self) -> None:
        """Remove what the server leaves on disk: nobody is there any more who could."""
        self._aside("dispose")
        if self.specification["remove"] is not None:
            shutil.rmtree(self.specification["remove"], ignore_errors=True)

    def afterwards(self) -> None:
        self._aside("afterwards")

    def _aside(self, what: str) -> bool:
        """Run one of the specification's extra commands, if it has it (a container is not our descendant)."""
        argv = cast("list[str]", self.specification[what])  # type: ignore[literal-required]
        if argv:
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return bool(argv)


def _wake(_number: int, _frame: FrameType | None) -> None:
    """Nothing to do: the number of the signal arrives in the wake-up pipe."""


def watch(guard: Guard) -> bool:
    """Carry out orders until the server is gone (False), or nobody is left to give any (True)."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # A handler, not SIG_IGN: the latter would be inherited by the server across exec.
        signal.signal(number, _wake)
    signal.set_wakeup_fd(wake_write)

    poll = select.poll()
    orders = sys.stdin.fileno()
    poll.register(orders, select.POLLIN | select.POLLHUP)
    poll.register(wake_read, select.POLLIN)
    parent = guard.specification["parent"]
    if sys.platform == "linux":
        try:
            poll.register(os.pidfd_open(parent), select.POLLIN)
        except ProcessLookupError:
            return True
    if os.getppid() != parent:  # it ended before the watch began
        return True

    while True:
        guard.reap()
        if guard.status is not None:
            guard.sweep()
            return False
        for descriptor, _ in poll.poll():
            if descriptor == wake_read:
                arrived = os.read(wake_read, 512)
                if arrived.strip(bytes([signal.SIGCHLD])):
                    return True
            elif descriptor != orders:
                return True
            else:
                order = os.read(orders, 512).decode().strip()
                if not order:
                    return True
                try:
                    _carry_out(guard, order)
                except (OSError, ValueError) as error:  # TimeoutError is one of the former
                    _say(f"failed {error}")
                else:
                    _say("done")


def _carry_out(guard: Guard, order: str) -> None:
    match order.split():
        case ["stop"]:
            guard.stop()
        case ["kill"]:
            guard.sweep()
        case ["pause"]:
            guard.pause()
        case ["resume"]:
            guard.resume()
        case ["signal", number]:
            os.kill(guard.server.pid, int(number))
        case _:
            raise ValueError(f"unknown order {order!r}")


def _say(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), line.encode() + b"\n")


def main() -> int:
    first_line = b""
    while not first_line.endswith(b"\n"):  # unbuffered: the orders behind it must stay in the pipe
        byte = os.read(sys.stdin.fileno(), 1)
        if not byte:
            return 0
        first_line += byte
    try:
        guard = Guard(cast(Specification, json.loads(first_line)))
    except OSError as error:
        _say(f"failed {error}")
        return 1
    _say(f"started {guard.server.pid}")
    if watch(guard):
        if guard.specification["clean_end"]:
            guard.stop()
        else:
            guard.sweep()
    guard.afterwards()
    if os.getppid() != guard.specification["parent"]:
        guard.dispose()
    _say(f"ended {guard.status}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
