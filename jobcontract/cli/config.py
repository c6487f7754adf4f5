"""``jobctl config``: what is configured, and where it comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta

import click

from jobcontract.cli.command import Command, Group, json_option
from jobcontract.cli.output import print_fields, print_json
from jobcontract.cli.session import Session, pass_session
from jobcontract.config import DEFAULT_URL, ScheduleTable, Settings
from jobcontract.durations import format_duration
from jobcontract.errors import ConfigError


@click.group(cls=Group)
def config() -> None:
    """See what is configured."""


@config.command(
    cls=Command, takes_backend=False, examples=("jobctl config show", "jobctl config show --json")
)
@json_option
@pass_session
def show(session: Session, as_json: bool) -> None:
    """Show the settings as they are understood.

    Contacts nothing. Environment variables win over the file.

    Passwords are hidden, and so is all text in the options of a backend and in the parameters of its URL, for
    any of it may be a secret.
    """
    settings = session.settings
    variables = sorted(name for name in os.environ if name.startswith("JOBCONTRACT_"))
    values: dict[str, object] = {
        "file": str(settings.source) if settings.source else None,
        "environment": variables,
        "default": settings.default,
        "max_input_ref_bytes": settings.max_input_ref_bytes,
        "backends": {name: _backend(settings, name) for name in sorted(settings.backends)},
        "worker": {name: _table_value(value) for name, value in settings.worker},
        "relay": {name: _table_value(value) for name, value in settings.relay},
        "schedules": {name: _schedule(table) for name, table in sorted(settings.schedules.items())},
    }
    if as_json:
        print_json(values)
        return
    fields = [
        ("file", values["file"] or "none"),
        ("environment", ", ".join(variables) or "none"),
        ("default", settings.default or _default(settings)),
        ("max_input_ref_bytes", settings.max_input_ref_bytes),
        *(
            (f"backends.{name}.{option}", value)
            for name in sorted(settings.backends)
            for option, value in _backend(settings, name).items()
        ),
        *((f"worker.{name}", _table_value(value)) for name, value in settings.worker),
        *((f"relay.{name}", _table_value(value)) for name, value in settings.relay),
        *(
            (f"schedules.{name}.{option}", value)
            for name, table in sorted(settings.schedules.items())
            for option, value in _schedule(table).items()
        ),
    ]
    print_fields((name, str(value)) for name, value in fields)


def _default(settings: Settings) -> str:
    if not settings.backends:
        return f"{DEFAULT_URL}, for nothing is configured"
    names = sorted(settings.backends)
    return names[0] if len(names) == 1 else "none; every command needs --backend"


def _backend(settings: Settings, name: str) -> dict[str, object]:
    try:
        store = settings.store(name)
    except ConfigError as error:
        return {"problem": str(error)}
    outbox = {} if store.outbox is None else {"outbox": store.outbox}
    return {"url": store.url.redacted(), **outbox, **_hidden(store.url.query), **_hidden(store.options)}


def _hidden(options: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value if value is None or isinstance(value, (bool, int, float)) else "***"
        for name, value in sorted(options.items())
    }


def _schedule(table: ScheduleTable) -> dict[str, object]:
    """Without the input and the headers, which are the application's."""
    shown = {name: _table_value(value) for name, value in table if value not in (None, {})}
    return {name: "..." if name in ("input", "headers") else value for name, value in shown.items()}


def _table_value(value: object) -> object:
    return format_duration(value) if isinstance(value, timedelta) else value
