"""``jobctl backends``: what each configured store can do, as its live server says."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import click

from jobcontract.backend import Backend
from jobcontract.cli.capability_words import sentences, words
from jobcontract.cli.command import Command, json_option
from jobcontract.cli.escape import one_line, without_url_passwords
from jobcontract.cli.exits import CommandFailed, code_of
from jobcontract.cli.output import Column, note, print_fields, print_json, say, show
from jobcontract.cli.session import Session, pass_session
from jobcontract.contract import FEATURES, Capabilities, TimedLease
from jobcontract.errors import ConfigError, JobContractError

# Each unreachable store takes its own deadline to say so; together they take one.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    url: str
    default: bool
    capabilities: Capabilities | None
    error: JobContractError | None


@click.command(
    cls=Command,
    examples=("jobctl backends", "jobctl backends local", "jobctl backends --json"),
)
@click.argument("name", required=False)
@json_option
@pass_session
def backends(session: Session, name: str | None, as_json: bool) -> None:
    """Show what the configured stores can do, or all about one.

    It is read from the live servers: their versions and settings count. A backend that can't be asked is a
    line with the reason; it fails the command only when it was asked for by name.
    """
    if name is not None and session.backend_name is not None:
        raise click.UsageError("NAME and --backend are the same thing; give one.")
    chosen = name or session.backend_name
    names = [_as_listed(session, chosen)] if chosen else _all_names(session)
    default = _default_name(session)
    opened = [_open(session, each, default) for each in names]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(_ask, opened))
    if as_json:
        print_json([_as_json(each) for each in found])
    elif chosen:
        _print_one(found[0])
    else:
        _print_all(found)
    problem = found[0].error
    if chosen and problem is not None:
        raise CommandFailed(str(problem), code_of(problem)) from problem


def _as_listed(session: Session, name: str) -> str | None:
    # With nothing configured, the list calls what there is "default".
    return None if name == "default" and not session.settings.backends else name


def _all_names(session: Session) -> Sequence[str | None]:
    return sorted(session.settings.backends) or [None]


def _default_name(session: Session) -> str | None:
    try:
        return session.settings.store().name
    except ConfigError:  # several, and none of them is the default
        return None


def _open(session: Session, name: str | None, default: str | None) -> tuple[_Found, Backend | None]:
    url = ""
    try:
        store = session.store(name)
        url = store.url.redacted()
        found = _Found(store.name, url, store.name == default, None, None)
        return found, session.backend(name)
    except ConfigError as error:
        return _Found(name or "default", url, name == default, None, error), None


def _ask(opened: tuple[_Found, Backend | None]) -> _Found:
    found, backend = opened
    if backend is None:
        return found
    try:
        return _Found(found.name, found.url, found.default, backend.capabilities, None)
    except JobContractError as error:
        return _Found(found.name, found.url, found.default, None, error)


def _print_all(found: list[_Found]) -> None:
    columns = ("BACKEND", "STORE", "SURVIVES", "TRANSACTIONS", "KEYS", "DELAYS", "PRIORITIES", "NO")
    rows = [
        (f"{each.name} (default)" if each.default else each.name, *words(each.capabilities))
        for each in found
        if each.capabilities is not None
    ]
    if rows:
        show([Column(title, gives_way=title in ("STORE", "NO")) for title in columns], rows)
    for each in found:
        if each.error is not None:
            say(f"{each.name}  {one_line(str(each.error))}")
    for each in found:
        for remark in each.capabilities.notes if each.capabilities else ():
            say(f"{each.name}: {one_line(remark)}")
    note("for more: jobctl backends NAME")


def _print_one(found: _Found) -> None:
    if found.capabilities is None:
        return
    print_fields(
        [
            ("backend", f"{found.name} (default)" if found.default else found.name),
            ("url", found.url),
            *sentences(found.capabilities),
            *(("note", remark) for remark in found.capabilities.notes),
        ]
    )


def _as_json(found: _Found) -> dict[str, object]:
    capabilities = found.capabilities
    return {
        "name": found.name,
        "url": found.url,
        "default": found.default,
        "reachable": capabilities is not None,
        "error": without_url_passwords(str(found.error)) if found.error else None,
        "capabilities": _capabilities_json(capabilities) if capabilities else None,
    }


def _capabilities_json(capabilities: Capabilities) -> dict[str, object]:
    lease, scheduling = capabilities.lease, capabilities.scheduling
    return {
        "store": capabilities.store,
        "deduplication": capabilities.deduplication.value,
        "durability": capabilities.durability.value,
        "transactional": capabilities.transactional.value,
        "lease": {
            "type": "timed" if isinstance(lease, TimedLease) else "connection",
            "shortest_seconds": lease.shortest.total_seconds() if isinstance(lease, TimedLease) else None,
            "longest_seconds": lease.longest.total_seconds(),
        },
        "scheduling": scheduling
        and {
            "resolution_seconds": scheduling.resolution.total_seconds(),
            "longest_seconds": scheduling.longest.total_seconds() if scheduling.longest else None,
        },
        "priority_levels": capabilities.priority_levels,
        "max_register_batch": capabilities.max_register_batch,
        "max_input_ref_bytes": capabilities.max_input_ref_bytes,
        "features": [feature for feature in FEATURES if capabilities.has(feature)],
        "notes": list(capabilities.notes),
    }
