"""Debian 13's servers beside the machine's own: PostgreSQL 17, Redis 8, Valkey 8, RabbitMQ 4, PgBouncer 1.24.

Their packages are unpacked, not installed, into a folder of the cache, and run in it by chroot, which takes
root. `python -m tests.servers.debian13` prepares the folder and says where it is; remove it to have it made
anew with newer packages. `pytest --servers=debian13` runs the tests on them.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.binaries import Programs, Service, ServiceMissing, unprivileged_user
from tests.servers.process import User

CODENAME = "trixie"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

PACKAGES = (
    *("postgresql-17", "postgresql-17-cron", "redis-server", "valkey-server", "rabbitmq-server", "pgbouncer"),
    # What their scripts call, and what every Debian has installed.
    *("base-files", "base-passwd", "bash", "coreutils", "dash", "findutils", "grep", "hostname", "libc-bin"),
    *("mawk", "procps", "sed", "util-linux"),
)

_PATHS: Mapping[Service, Mapping[str, str]] = {
    Service.POSTGRES: {
        "postgres": "/usr/lib/postgresql/17/bin/postgres",
        "initdb": "/usr/lib/postgresql/17/bin/initdb",
        "pg_dump": "/usr/lib/postgresql/17/bin/pg_dump",
    },
    Service.PG_CRON: {
        "postgres": "/usr/lib/postgresql/17/bin/postgres",
        "initdb": "/usr/lib/postgresql/17/bin/initdb",
    },
    Service.REDIS: {"server": "/usr/bin/redis-server"},
    Service.RABBITMQ: {
        "server": "/usr/lib/rabbitmq/bin/rabbitmq-server",
        "ctl": "/usr/lib/rabbitmq/bin/rabbitmqctl",
        "epmd": "/usr/bin/epmd",
    },
    Service.PGBOUNCER: {"pgbouncer": "/usr/sbin/pgbouncer"},
}

# The mounts are seen by this process and its children only, and are gone with them.
_ENTER = """
set -e
root=$1 folder=$2 user=$3 group=$4
shift 4
for shared in /proc /dev "$folder"; do
    mkdir -p "$root$shared"
    mount --rbind "$shared" "$root$shared"
done
exec chroot "$root" setpriv --pdeathsig KILL --reuid "$user" --regid "$group" --clear-groups -- "$@"
"""


@dataclass(frozen=True)
class FolderPrograms(Programs):
    """Programs that run in a root folder of their own; they see the server's folder under its usual name."""

    root: Path = Path("/")

    def argv(
        self, program: str, *arguments: str, directory: Path, user: User | None
    ) -> tuple[list[str], User | None]:
        uid, gid = (0, 0) if user is None else (user.uid, user.gid)
        # The parent folder, so that no mount point is left in the root for each server.
        enter = ["sh", "-c", _ENTER, "enter", str(self.root), str(directory.parent), str(uid), str(gid)]
        argv, _ = super().argv(program, *arguments, directory=directory, user=user)
        return ["unshare", "--mount", "--propagation", "private", *enter, *argv], None


def debian13_programs(service: Service, *, valkey: bool = False) -> Programs:
    """A service's programs as Debian 13 has them; blocks for a minute the first time on a machine.

    Args:
        valkey: Valkey in place of Redis.

    Raises:
        ServiceMissing: no root, no Debian, or the packages can't be had.
    """
    root = prepare()
    if service is Service.PG_CRON and not (root / "usr/lib/postgresql/17/lib/pg_cron.so").exists():
        raise ServiceMissing(f"{root} was made before it held pg_cron; remove it to have it made anew.")
    paths = {"server": "/usr/bin/valkey-server"} if valkey and service is Service.REDIS else _PATHS[service]
    return FolderPrograms(service, f"Debian 13 in {root}", paths, root=root)


@functools.cache
def prepare() -> Path:
    """Unpack the packages, unless that was done before, and return the root folder.

    Raises:
        ServiceMissing: see `debian13_programs`.
    """
    missing = "Debian 13's servers can't be had here: "
    if os.geteuid() != 0:
        raise ServiceMissing(f"{missing}they run by chroot; run the tests as root, or without them.")
    if shutil.which("apt-get") is None or not Path(KEYRING).exists():
        raise ServiceMissing(f"{missing}this is not Debian; run the tests without them.")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jobcontract"
    cache.mkdir(parents=True, exist_ok=True)
    root = cache / f"debian13-{os.uname().machine}"
    with (cache / "debian13.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            print("unpacking Debian 13's servers for the tests ...", file=sys.__stderr__, flush=True)
            with tempfile.TemporaryDirectory(prefix="debian13-", dir=cache) as work:
                try:
                    _unpack(Path(work))
                except subprocess.CalledProcessError as error:
                    tail = " / ".join(str(error.output).strip().splitlines()[-3:])
                    raise ServiceMissing(f"{missing}{error.cmd[0]} failed ({tail}).") from None
                (Path(work) / "root").rename(root)
    return root


def _unpack(work: Path) -> None:
    for folder in ("lists/partial", "archives/partial", "root"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()  # nothing is installed in there: every dependency is downloaded
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {CODENAME} main\n")
    options = {
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
        "Dir::Cache": work,
        "Dir::Cache::Archives": work / "archives",
        "Dir::Etc::SourceList": work / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": work / "lists",
        "Dir::State::Status": work / "status",
    }
    apt = ["apt-get", "-qq", *(f"-o{key}={value}" for key, value in options.items())]
    _run([*apt, "update"])
    _run([*apt, "install", "--yes", "--no-install-recommends", "--download-only", *PACKAGES])

    root = work / "root"
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in sorted((work / "archives").glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(root)])

    # The rest of what the packages' own scripts would have done, as far as a server notices.
    account = unprivileged_user() or User("nobody", 65534, 65534)
    passwd = (root / "usr/share/base-passwd/passwd.master").read_text()
    entry = f"{account.name}:*:{account.uid}:{account.gid}::/nonexistent:/bin/sh\n"
    (root / "etc/passwd").write_text(passwd if f"\n{account.name}:" in passwd else passwd + entry)
    shutil.copy(root / "usr/share/base-passwd/group.master", root / "etc/group")
    shutil.copy("/etc/hosts", root / "etc/hosts")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (root / "usr/bin/awk").symlink_to("mawk")
    _run(["chroot", str(root), "/usr/sbin/ldconfig"])


def _mirror() -> str:
    """Where this machine gets its own packages."""
    targets = _run(["apt-get", "indextargets", "--format", "$(COMPONENT) $(SUITE) $(REPO_URI)"])
    for line in targets.splitlines():
        component, suite, address = line.split(" ", 2)
        if component == "main" and suite in ("stable", "oldstable", "testing"):
            return address.strip()
    raise ServiceMissing(
        "Debian 13's servers can't be had here: apt knows no Debian mirror yet; run apt-get update once."
    )


def _run(argv: Sequence[str]) -> str:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    result = subprocess.run(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return result.stdout


if __name__ == "__main__":
    try:
        print(prepare())
    except ServiceMissing as absent:
        sys.exit(str(absent))
