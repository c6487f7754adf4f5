"""Store URLs, taken apart here before any client library sees them.

Client libraries echo what they can't parse, password and all. So the URL is split, decoded and checked by
`StoreURL`; drivers hand the *parts* to their clients, and nothing but `StoreURL.redacted` is ever printed.

    scheme://[user[:password]@]host[:port][,host[:port]...][/path][?name=value&...]

IPv6 hosts stand in brackets. User, password, path and values are percent-decoded; a password with ``@``,
``:`` or ``/`` in it must be percent-encoded, and the error that says so shows none of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from pydantic import SecretStr

from jobcontract.errors import ConfigError

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]{0,39})://")
_PARAMETER = re.compile(r"^[A-Za-z][A-Za-z0-9_.\-]{0,63}\Z")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Host:
    """One server address; `port` None is the store's default."""

    name: str
    port: int | None = None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return name if self.port is None else f"{name}:{self.port}"


@dataclass(frozen=True, slots=True)
class StoreURL:
    """A parsed URL. Its repr and str are redacted."""

    scheme: str
    username: str | None = None
    password: SecretStr | None = None
    hosts: tuple[Host, ...] = ()
    path: str = ""
    """Decoded, with its leading slash: "/db", "//absolute/file" for sqlite."""
    query: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def parse(cls, text: str) -> StoreURL:
        """Take `text` apart. Raises `ConfigError` with a sentence that shows no part of user, password or
        query.
        """
        found = _SCHEME.match(text)
        if not found:
            raise ConfigError(
                "the URL does not begin with a scheme such as postgresql://, sqlite://, redis:// or amqp://"
            )
        scheme = found[1].lower()
        if any(ord(character) < 33 or ord(character) == 127 for character in text):
            raise ConfigError(f"the {scheme} URL holds a space or control character; percent-encode it")
        if _BAD_PERCENT.search(text):
            raise ConfigError(
                f"the {scheme} URL has a '%' without two hex digits behind it; write a literal '%' as %25"
            )
        if "#" in text:
            raise ConfigError(f"the {scheme} URL holds a '#'; write a literal '#' as %23")
        rest, _, query = text[found.end() :].partition("?")
        authority, slash, path = rest.partition("/")
        credentials, at, addresses = authority.rpartition("@")
        if "@" in credentials:
            raise ConfigError(
                f"the {scheme} URL has more than one '@' before its host; write one in a password as %40"
            )
        if "@" in path:
            # postgresql://user:pa/ss@host/db: the password's slash ended the authority early.
            raise ConfigError(
                f"the {scheme} URL has an '@' in its path; write '/' in a password as %2F and '@' as %40"
            )
        if "=" in path or "&" in path or "=" in addresses or "&" in addresses:
            # sqlite:///jobs.db&timeout=5s would be a file of that name.
            raise ConfigError(
                f"the {scheme} URL has a '=' or '&' before any '?'; parameters begin with '?', and in a path "
                "'=' is written as %3D and '&' as %26"
            )
        if not at and "@" in query:
            raise ConfigError(f"the {scheme} URL has an '@' behind a '?'; write '?' as %3F and '@' as %40")
        username, colon, password = credentials.partition(":")
        return cls(
            scheme=scheme,
            username=_decode(scheme, "user name", username) if at and username else None,
            password=SecretStr(_decode(scheme, "password", password)) if colon else None,
            hosts=tuple(_host(scheme, address) for address in addresses.split(",")) if addresses else (),
            path=_decode(scheme, "path", slash + path),
            query=_query(scheme, query),
        )

    def redacted(self) -> str:
        """The URL for people: scheme, user, hosts and path, the password as ``***``, no query.

        A user name without a password is ``***`` too: in "redis://secret@host" it is the password.
        """
        user = ""
        if self.password is not None:
            user = f"{self.username or ''}:***@"
        elif self.username is not None:
            user = "***@"
        return f"{self.scheme}://{user}{','.join(map(str, self.hosts))}{self.path}"

    def __repr__(self) -> str:
        return f"StoreURL({self.redacted()!r})"

    __str__ = redacted


def _decode(scheme: str, part: str, text: str) -> str:
    decoded: str | None
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        decoded = None
    if decoded is None:  # raised here, for the decoder's error shows the text and would be the context
        raise ConfigError(f"the {part} in the {scheme} URL is not UTF-8 when percent-decoded")
    if "\x00" in decoded:
        raise ConfigError(f"the {part} in the {scheme} URL holds NUL")
    return decoded


def _host(scheme: str, address: str) -> Host:
    # No part of the address is echoed: it may be the tail of a password with an unescaped ',' or ':'.
    if address.startswith("["):
        name, bracket, rest = address[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfigError(f"the {scheme} URL has an IPv6 host that is not written as [address]:port")
        port = rest[1:]
    else:
        name, colon, port = address.partition(":")
        if ":" in port:
            raise ConfigError(
                f"the {scheme} URL has a host with several ':'; write an IPv6 address in brackets"
            )
        rest = colon + port
    if rest and not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
        raise ConfigError(f"the {scheme} URL has a port that is not a number from 1 to 65535")
    name = _decode(scheme, "host", name)
    if not name and not rest:
        raise ConfigError(f"the {scheme} URL has an empty host between commas")
    return Host(name, int(port) if rest else None)


def _query(scheme: str, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in text.split("&") if text else ():
        name, equals, value = item.partition("=")
        name = _decode(scheme, "name of a parameter", name)
        if not equals or not _PARAMETER.match(name):
            raise ConfigError(f"the {scheme} URL has a parameter that is not written as name=value")
        if name in found:
            raise ConfigError(f"the {scheme} URL has the parameter {name!r} twice")
        found[name] = _decode(scheme, f"parameter {name!r}", value.replace("+", " "))
    return found
