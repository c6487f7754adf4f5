"""Settings: which stores exist, which is the default, and how a worker behaves.

They come from `jobcontract.toml` (or ``[tool.jobcontract]`` in `pyproject.toml`), found in the working
directory or the nearest
directory above it that has one, or from the file that ``JOBCONTRACT_CONFIG`` names. Environment variables
win over the file::

    JOBCONTRACT_DEFAULT=postgres
    JOBCONTRACT_BACKENDS__POSTGRES__URL=postgresql://...

Nothing configured at all means `DEFAULT_URL`. A key that nobody reads is an error that names the nearest
known one, for a setting with a typo in it is a setting that silently does nothing.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from jobcontract.contract import DEFAULT_INPUT_REF_BYTES
from jobcontract.durations import Duration, PositiveDuration
from jobcontract.errors import ConfigError
from jobcontract.url import StoreURL

DEFAULT_URL = "sqlite:///jobcontract.db"
FILE_NAME = "jobcontract.toml"
_ENVIRONMENT_PREFIX = "JOBCONTRACT_"
_CONFIG_VARIABLE = "JOBCONTRACT_CONFIG"
_DELIMITER = "__"


class StoreOptions(BaseModel):
    """Base of a driver's own options: the keys of its ``[backends.NAME]`` table and the parameters of its
    URL.
    """

    # The errors of pydantic quote what they were given, which may be a password behind a key with a slip in
    # it.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


Options = TypeVar("Options", bound=StoreOptions)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """One configured store, as a driver gets it: its name, its URL taken apart, its options still unread."""

    name: str
    url: StoreURL
    options: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    outbox: str | None = None
    """The name of the SQL backend whose database holds the outbox in front of this store, if there is one."""

    def read_options(self, model: type[Options]) -> Options:
        """The options of the table and of the URL's query as `model`. Raises `ConfigError` for unknown,
        doubled or bad ones.
        """
        doubled = self.options.keys() & self.url.query.keys()
        if doubled:
            raise ConfigError(
                f"backend {self.name!r}: {min(doubled)!r} is set in the URL and beside it; keep one"
            )
        try:
            return model.model_validate({**self.options, **self.url.query})
        except ValidationError as error:
            known = [field.alias or name for name, field in model.model_fields.items()]
            raise ConfigError(f"backend {self.name!r}: {_sentence(error, known)}") from None


StoreName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,62}\z")]


class BackendTable(BaseModel):
    """``[backends.NAME]``: the URL, and the driver's own options."""

    model_config = ConfigDict(extra="allow", frozen=True)

    url: SecretStr
    outbox: StoreName | None = None
    """The SQL backend through which jobs are registered: they commit there, and `jobctl relay` publishes
    them.
    """

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Without the options: among them may be a password."""
        return [("url", self.url), ("outbox", self.outbox)]


class WorkerTable(BaseModel):
    """``[worker]``: what `jobctl worker` takes when its options don't say otherwise."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    concurrency: Annotated[int, Field(ge=1, le=1000)] = 16
    """How many handlers run at once in one process."""
    batch: Annotated[int, Field(ge=1, le=1000)] = 100
    """The most jobs that one claim takes. More than `concurrency` only pays for short handlers."""
    poll_interval: PositiveDuration = timedelta(seconds=2)
    """How long an idle worker waits between looks when nothing wakes it."""
    lease: PositiveDuration = timedelta(minutes=2)
    """How long a claim holds; it is renewed at a third of it."""
    grace: Duration = timedelta(seconds=30)
    """How long running handlers may go on after the first SIGTERM."""
    rescue_interval: PositiveDuration = timedelta(seconds=15)
    """How often, on average, this worker looks for expired leases."""


class RelayTable(BaseModel):
    """``[relay]``: how `jobctl relay` publishes what waits in an outbox."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: Annotated[int, Field(ge=1, le=10_000)] = 500
    """The most jobs that are taken, published and deleted in one transaction."""
    attempts: Annotated[int, Field(ge=1, le=1000)] = 10
    """How often a job that its target refuses is tried before it is parked."""
    poll_interval: PositiveDuration = timedelta(seconds=2)
    """How long an idle relay waits between looks when nothing wakes it."""
    retention: PositiveDuration = timedelta(days=14)
    """How long the outbox knows a job that was published, and holds its idempotency key."""


class ScheduleTable(BaseModel):
    """``[schedules.NAME]``: work that recurs. See `jobcontract.schedules`, which checks what it says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    cron: str | None = None
    """Five fields, such as ``0 2 * * *``; or `every`."""
    every: PositiveDuration | None = None
    """An interval in real time, in whole seconds; or `cron`."""
    timezone: str | None = None
    """In which time zone of the IANA database `cron` is read; else UTC."""
    input: dict[str, Any] = Field(default_factory=dict[str, Any])
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 5
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    catch_up: PositiveDuration = timedelta(hours=1)
    """How late a tick is still inserted without being asked; what is later is a gap (`jobctl schedule gaps`).
    """
    backend: StoreName | None = None
    """Where the jobs go; else to the default backend."""


ScheduleName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}\z")]

_STORE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,62}\Z")


class Settings(BaseSettings):
    """Everything that can be configured. Made by `load_settings`."""

    model_config = SettingsConfigDict(
        env_prefix=_ENVIRONMENT_PREFIX, env_nested_delimiter=_DELIMITER, extra="forbid", frozen=True
    )

    default: str | None = None
    """The store that `get_backend()` opens."""
    control: StoreName | None = None
    """The SQL store that knows where jobs live: `get_backend()` without a name follows it, and `jobctl
    migrate` keeps its state there.
    """
    backends: dict[StoreName, BackendTable] = Field(default_factory=dict[str, BackendTable])
    max_input_ref_bytes: Annotated[int, Field(ge=2, le=16 * 1024 * 1024)] = DEFAULT_INPUT_REF_BYTES
    """The largest `input_ref`, as JSON in bytes, that `register` takes."""
    worker: WorkerTable = WorkerTable()
    relay: RelayTable = RelayTable()
    schedules: dict[ScheduleName, ScheduleTable] = Field(default_factory=dict[str, ScheduleTable])
    source: Path | None = Field(default=None, exclude=True)
    """The file the settings came from. Not a setting."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """`load_settings` has read the environment and the file: nothing is looked up behind its back."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    def store(self, name_or_url: str | None = None) -> StoreSettings:
        """The store called `name_or_url`, or that URL, or the default one. Raises `ConfigError`."""
        if name_or_url is not None and "://" in name_or_url:
            return StoreSettings(name="url", url=StoreURL.parse(name_or_url))
        name = name_or_url or self.default or _only(self.backends)
        if name is None:
            return StoreSettings(name="default", url=StoreURL.parse(DEFAULT_URL))
        table = self.backends.get(name)
        if table is None:
            raise ConfigError(self._no_such_backend(name))
        url = _parse_url(f"backends.{name}.url", table.url.get_secret_value())
        return StoreSettings(name=name, url=url, options=table.model_extra or {}, outbox=table.outbox)

    def outbox_of(self, store: StoreSettings) -> StoreSettings | None:
        """The store whose database holds the outbox in front of `store`; None when it has none.

        Raises `ConfigError` when the name leads nowhere, or to a store that needs an outbox itself.
        """
        name = store.outbox
        if name is None:
            return None
        where = f"backends.{store.name}.outbox"
        if name == store.name:
            raise ConfigError(f"{where}: a backend can't be its own outbox; name a PostgreSQL or SQLite one")
        if name not in self.backends:
            raise ConfigError(f"{where}: there is no backend {name!r}; {_nearest(name, self.backends)}")
        if self.backends[name].outbox is not None:
            raise ConfigError(f"{where}: {name!r} has an outbox itself; name a PostgreSQL or SQLite backend")
        return self.store(name)

    def control_store(self) -> StoreSettings | None:
        """The store that knows where jobs live, if one is configured. Raises `ConfigError`."""
        if self.control is None:
            return None
        if self.control not in self.backends:
            raise ConfigError(
                f"control: there is no backend {self.control!r}; {_nearest(self.control, self.backends)}"
            )
        return self.store(self.control)

    def _no_such_backend(self, name: str) -> str:
        if not _STORE_NAME.match(name):  # perhaps a URL without its //, password and all
            return "a backend's name is 1 to 63 of [A-Za-z0-9_-], and a URL has a '://'; this is neither"
        if not self.backends:
            return f"there is no backend {name!r}: none is configured; add [backends.{name}] to {FILE_NAME}"
        return f"there is no backend {name!r}; {_nearest(name, self.backends)}"


def load_settings(path: Path | None = None, *, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings. `path` names the file; otherwise it is looked for as this module's docstring says.
    `environment` stands in for this process's own.

    Reads files, contacts nothing. Raises `ConfigError` that names the file and the key.
    """
    variables = os.environ if environment is None else environment
    _refuse_unknown_variables(variables)
    source = path or _find_file(variables)
    values = _read_file(source) if source else {}
    for name in values:
        # What Settings(**values) would take and is no key of the file: ours, and pydantic-settings' own.
        if name == "source" or name.startswith("_"):
            raise ConfigError(f"{source}: {name!r} is not a setting; {_nearest(name, _known_keys(()))}")
    try:
        return Settings(**_merged(values, _from_environment(variables)), source=source)
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        where = str(source) if source else "the environment"
        variable = _ENVIRONMENT_PREFIX + _DELIMITER.join(str(part) for part in finding["loc"]).upper()
        if variable in variables:
            where = variable
        raise ConfigError(f"{where}: {_sentence(error, _known_keys(finding['loc']))}") from None
    except ValueError as error:  # pydantic-settings: a variable that should be JSON and is not
        raise ConfigError(f"an environment variable {_ENVIRONMENT_PREFIX}* can't be read: {error}") from None


def _from_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    source = EnvSettingsSource(Settings)
    source.env_vars = {name.lower(): value for name, value in variables.items()}
    return source()


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The two as one, table by table; where both have a value it is that of `above`."""
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        if isinstance(under, dict) and isinstance(value, dict):
            value = _merged(cast("dict[str, Any]", under), cast("dict[str, Any]", value))
        merged[name] = value
    return merged


def _find_file(variables: Mapping[str, str]) -> Path | None:
    named = variables.get(_CONFIG_VARIABLE)
    if named:
        return Path(named)
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the working directory was removed
        return None
    for directory in (here, *here.parents):
        candidate = directory / FILE_NAME
        if candidate.is_file():
            return candidate
        project = directory / "pyproject.toml"
        if project.is_file() and "jobcontract" in _table(project, _read_toml(project), "tool"):
            return project
    return None


def _read_file(path: Path) -> dict[str, Any]:
    values = _read_toml(path)
    if path.name == "pyproject.toml":
        return _table(path, _table(path, values, "tool"), "jobcontract")
    return values


def _table(path: Path, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = values.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {name!r} must be a table")
    return cast("dict[str, Any]", table)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors write a mark
    except FileNotFoundError:
        raise ConfigError(f"the configuration file {path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:  # its message gives line and column, and never the value
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _refuse_unknown_variables(variables: Mapping[str, str]) -> None:
    known = {name.upper() for name in Settings.model_fields if name != "source"} | {"CONFIG"}
    for variable in variables:
        upper = variable.upper()  # pydantic-settings reads them in any case
        if not upper.startswith(_ENVIRONMENT_PREFIX):
            continue
        first = upper.removeprefix(_ENVIRONMENT_PREFIX).split(_DELIMITER)[0]
        if first not in known:
            near = _nearest(first, known, _ENVIRONMENT_PREFIX)
            raise ConfigError(f"the environment variable {variable} is not a setting of jobcontract; {near}")


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    if location[:1] == ("worker",) and len(location) > 1:
        return list(WorkerTable.model_fields)
    if location[:1] == ("relay",) and len(location) > 1:
        return list(RelayTable.model_fields)
    if location[:1] == ("schedules",) and len(location) > 2:
        return list(ScheduleTable.model_fields)
    return [name for name in Settings.model_fields if name != "source"]


def _sentence(error: ValidationError, known: Iterable[str]) -> str:
    """The first finding: the key by its path, what is wrong with it, the nearest known key. Shows no value:
    it may be a secret.
    """
    finding = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(str(part) for part in finding["loc"])
    if finding["type"] == "extra_forbidden":
        return f"{key!r} is not a setting; {_nearest(str(finding['loc'][-1]), known)}"
    if finding["type"] == "missing":
        return f"{key!r} is required"
    message = finding["msg"]
    return f"{key!r}: {message[:1].lower()}{message[1:]}"


def _nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    return (
        f"did you mean {prefix + near[0]!r}?"
        if near
        else f"known are: {', '.join(prefix + each for each in names)}"
    )


def _only(backends: Mapping[str, BackendTable]) -> str | None:
    """The one configured backend needs no `default`; among several, the choice must be said."""
    if len(backends) > 1:
        raise ConfigError(
            "several backends are configured and none is the default; "
            f"set default to one of: {', '.join(sorted(backends))}"
        )
    return next(iter(backends), None)


def _parse_url(where: str, text: str) -> StoreURL:
    try:
        return StoreURL.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
