"""Installs the services' packages on Debian, without starting a service on a standard port.

`python -m tests.servers.install [postgres redis rabbitmq pgbouncer]` does it ahead of the tests and says
where each service will come from; its exit status is 1 when one of them can't be had.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

POSTGRES_OF_DEBIAN = {"12": "postgresql-15", "13": "postgresql-17"}

_PACKAGES: Mapping[str, str] = {
    "redis": "redis-server",
    "rabbitmq": "rabbitmq-server",
    "pgbouncer": "pgbouncer",
}

# One script, so that one `sudo` covers it and its trap undoes it. It is given the packages as arguments.
_SCRIPT = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
marker='jobcontract tests: no service starts while their packages are installed'
policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.d/jobcontract-tests.conf

undo() {
    if grep -qsF "$marker" "$policy"; then rm -f "$policy"; fi
    rm -f "$clusters"
    rmdir /etc/postgresql-common/createcluster.d /etc/postgresql-common 2>/dev/null || true
}
trap undo EXIT
trap 'exit 130' HUP INT TERM

undo  # what an earlier run may have left that was killed
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\n# %s\nexit 101\n' "$marker" > "$policy"
    chmod 755 "$policy"
else
    status=0
    "$policy" redis-server start >/dev/null 2>&1 || status=$?
    if [ "$status" -ne 101 ]; then
        echo "$policy lets packages start their services" >&2
        exit 3
    fi
fi
mkdir -p /etc/postgresql-common/createcluster.d
echo 'create_main_cluster = false' > "$clusters"

is_installed() { dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'; }
units=''
note() { is_installed "$1" || { shift; units="$units $*"; }; }
note redis-server redis-server.service
note rabbitmq-server rabbitmq-server.service
note pgbouncer pgbouncer.service
note erlang-base epmd.service epmd.socket

get() { apt-get -o DPkg::Lock::Timeout=600 -qq "$@"; }
get install -y --no-install-recommends "$@" || { get update; get install -y --no-install-recommends "$@"; }

# Nor at the next boot, what came with these packages.
if command -v systemctl >/dev/null; then
    for unit in $units; do systemctl disable "$unit" >/dev/null 2>&1 || true; done
fi
"""


class CannotInstall(Exception):
    """Why nothing was installed, as the end of a sentence."""


def install_packages(service: str, *, unless: Callable[[], bool]) -> None:
    """Install a service's packages; blocks until that is done, also when another run is at it.

    Args:
        unless: asked again once no other run is installing.

    Raises:
        CannotInstall: not Debian 12 or 13, no way to become root, or apt-get failed.
    """
    debian = _debian_version()
    if debian is None:
        raise CannotInstall("this is not Debian 12 or 13, where it would be installed")
    as_root = _as_root()
    if as_root is None:
        raise CannotInstall("packages can't be installed without root or a sudo that asks no password")
    lock = Path(tempfile.gettempdir(), f"jobcontract-install-{os.geteuid()}.lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if unless():
            return
        package = _package(service, debian)
        print(f"installing {package} for the tests ...", file=sys.__stderr__, flush=True)
        result = subprocess.run(
            [*as_root, "sh", "-s", "--", package],
            input=_SCRIPT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if result.returncode != 0:
        tail = " / ".join(result.stdout.strip().splitlines()[-3:])
        raise CannotInstall(f"apt-get could not install {package} ({tail})")


def advice(service: str) -> str:
    """How a person gets the service."""
    debian = _debian_version()
    package = _package(service, debian)
    engine = "" if service in ("pgbouncer", "pg_cron") else " or start a Docker engine"
    return f"on Debian: apt-get install {package}{engine}"


def _package(service: str, debian: str | None) -> str:
    postgres = POSTGRES_OF_DEBIAN.get(debian or "", "postgresql")
    if service == "pg_cron":
        return f"{postgres}-cron"  # brings the server of its version
    return postgres if service == "postgres" else _PACKAGES[service]


def _debian_version() -> str | None:
    try:
        lines = Path("/etc/os-release").read_text().splitlines()
    except FileNotFoundError:
        return None
    release = {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}
    version = release.get("VERSION_ID", "")
    return version if release.get("ID") == "debian" and version in POSTGRES_OF_DEBIAN else None


def _as_root() -> Sequence[str] | None:
    """What to put in front of a command so that root runs it; None when there is no way."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if asked.returncode == 0 else None


def main(names: Sequence[str]) -> int:
    from tests.servers.binaries import Service, ServiceMissing, find_programs, title

    status = 0
    for service in map(Service, names or list(Service)):
        try:
            print(f"{title(service)}: {find_programs(service).origin}")
        except ServiceMissing as missing:
            print(missing)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
