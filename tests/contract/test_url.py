"""Store URLs: what each part means, what is refused, and that a password never comes out again."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobcontract.errors import ConfigError
from jobcontract.url import Host, StoreURL

CANARY = "cAnArY"


def host(name: str, port: int | None = None) -> tuple[Host, ...]:
    return (Host(name, port),)


GOOD: list[tuple[str, StoreURL | str, tuple[Host, ...], str, dict[str, str]]] = [
    # URL                                       user:password, hosts, path, query
    ("sqlite://", "", (), "", {}),
    ("sqlite:///jobs.db", "", (), "/jobs.db", {}),
    ("sqlite:////var/lib/jobs.db", "", (), "//var/lib/jobs.db", {}),
    ("sqlite:///a%20b%3F%3D%26.db", "", (), "/a b?=&.db", {}),
    ("postgresql://", "", (), "", {}),
    ("postgresql://h", "", host("h"), "", {}),
    ("postgresql://u@h/db", "u:", host("h"), "/db", {}),
    ("postgresql://u:p@h:5433/db", "u:p", host("h", 5433), "/db", {}),
    ("postgresql://u:p%40%3A%2F%25%23%3F@h/db", "u:p@:/%#?", host("h"), "/db", {}),
    ("postgresql://u:p:q@h/db", "u:p:q", host("h"), "/db", {}),
    ("postgresql://u:p%C3%A9@h/db", "u:pé", host("h"), "/db", {}),
    ("postgresql://u%40corp:p@h/db", "u@corp:p", host("h"), "/db", {}),
    ("postgresql://u:@h/db", "u:", host("h"), "/db", {}),
    ("postgresql://@h/db", "", host("h"), "/db", {}),
    ("postgresql://[::1]/db", "", host("::1"), "/db", {}),
    ("postgresql://u:p@[2001:db8::7]:5433/db", "u:p", host("2001:db8::7", 5433), "/db", {}),
    ("postgresql://%2Fvar%2Frun/db", "", host("/var/run"), "/db", {}),
    (
        "postgresql:///db?host=%2Fvar%2Frun&connect_timeout=3",
        "",
        (),
        "/db",
        {"host": "/var/run", "connect_timeout": "3"},
    ),
    ("postgresql://a:1,b:2,c/db", "", (Host("a", 1), Host("b", 2), Host("c")), "/db", {}),
    ("redis://:p@h:6380/3", ":p", host("h", 6380), "/3", {}),
    ("redis+sentinel://a:1,b:2/primary/0", "", (Host("a", 1), Host("b", 2)), "/primary/0", {}),
    ("amqps://u:p@h/%2F", "u:p", host("h"), "//", {}),
    ("POSTGRESQL://Host/DB", "", host("Host"), "/DB", {}),
    ("redis://h?a=1&b=&c=d=e&f=x+y%2B", "", host("h"), "", {"a": "1", "b": "", "c": "d=e", "f": "x y+"}),
]


@pytest.mark.parametrize(("text", "credentials", "hosts", "path", "query"), GOOD)
def test_the_parts_of_a_url(
    text: str, credentials: str, hosts: tuple[Host, ...], path: str, query: dict[str, str]
) -> None:
    url = StoreURL.parse(text)
    password = url.password.get_secret_value() if url.password is not None else ""
    assert f"{url.username or ''}:{password}" == (credentials or ":")
    assert (url.hosts, url.path, url.query) == (hosts, path, query)
    assert url.scheme == text.partition(":")[0].lower()


BAD: list[tuple[str, str]] = [
    ("", "does not begin with a scheme"),
    ("postgres", "does not begin with a scheme"),
    ("postgresql:/h/db", "does not begin with a scheme"),
    ("postgresql:h", "does not begin with a scheme"),
    ("://h/db", "does not begin with a scheme"),
    ("1pg://h", "does not begin with a scheme"),
    (" postgresql://h", "does not begin with a scheme"),
    ("host=h dbname=db", "does not begin with a scheme"),
    ("postgresql://h/a b", "a space or control character"),
    ("postgresql://h/db\n", "a space or control character"),
    ("postgresql://h\x00/db", "a space or control character"),
    ("postgresql://u:100%@h/db", "'%' without two hex digits"),
    ("postgresql://u:%zz@h/db", "'%' without two hex digits"),
    ("postgresql://u:p#q@h/db", "a '#'"),
    ("postgresql://u:p@q@h/db", "more than one '@'"),
    ("postgresql://u:p/q@h/db", "an '@' in its path"),
    ("postgresql://u:p?q@h/db", "an '@' behind a '?'"),
    ("postgresql://u:p%ff@h/db", "password in the postgresql URL is not UTF-8"),
    ("postgresql://u:p%00@h/db", "password in the postgresql URL holds NUL"),
    ("postgresql://u%00@h/db", "user name in the postgresql URL holds NUL"),
    ("postgresql://h:0/db", "a port that is not a number from 1 to 65535"),
    ("postgresql://h:65536/db", "a port that is not a number"),
    ("postgresql://h:5432x/db", "a port that is not a number"),
    ("postgresql://h:/db", "a port that is not a number"),
    ("postgresql://h:+1/db", "a port that is not a number"),
    ("postgresql://h:\u0665/db", "a port that is not a number"),
    ("postgresql://h:" + "9" * 10_000, "a port that is not a number"),
    ("postgresql://::1/db", "write an IPv6 address in brackets"),
    ("postgresql://[::1/db", "not written as [address]:port"),
    ("postgresql://[::1]5432/db", "not written as [address]:port"),
    ("postgresql://a,,b/db", "an empty host"),
    ("sqlite:///jobs.db&timeout=5s", "parameters begin with '?'"),
    ("postgresql://h&a=b", "parameters begin with '?'"),
    ("postgresql://h?a", "not written as name=value"),
    ("postgresql://h?=a", "not written as name=value"),
    ("postgresql://h?a=1&", "not written as name=value"),
    ("postgresql://h?a%20b=1", "not written as name=value"),
    ("postgresql://h?a=1&a=2", "the parameter 'a' twice"),
    ("postgresql://h?a=%ff", "not UTF-8"),
    ("postgresql://h?a=%00", "holds NUL"),
]


@pytest.mark.parametrize(("text", "reason"), BAD, ids=[f"{n}-{reason}" for n, (_, reason) in enumerate(BAD)])
def test_a_bad_url_is_refused_in_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreURL.parse(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@given(st.text(min_size=1).filter(lambda text: "\x00" not in text and text.isprintable()), st.booleans())
@example("p@:/%#?&=+,[]", True)
def test_any_password_can_be_written_percent_encoded(password: str, several: bool) -> None:
    hosts = "a:1,b" if several else "[::1]:5432"
    url = StoreURL.parse(f"postgresql://user:{quote(password, safe='')}@{hosts}/db?x=1")
    assert url.password is not None
    assert url.password.get_secret_value() == password
    assert url.username == "user"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("postgresql://u:secret@h:5432/db?password=secret", "postgresql://u:***@h:5432/db"),
        ("postgresql://:secret@a:1,[::1]:2/db", "postgresql://:***@a:1,[::1]:2/db"),
        ("postgresql://u:@h/db", "postgresql://u:***@h/db"),
        ("redis://secret@h/0", "redis://***@h/0"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ],
)
def test_a_url_for_people(text: str, redacted: str) -> None:
    url = StoreURL.parse(text)
    assert url.redacted() == str(url) == redacted
    assert repr(url) == f"StoreURL({redacted!r})"
    assert f"{url}" == f"{url!s}" == redacted


SECRET_URLS = [
    f"postgresql://user:{CANARY}@host.example:5432/db?sslmode=require",
    f"postgresql://:{CANARY}@[::1]:5432/db",
    f"postgresql://host/db?password={CANARY}&sslmode=require",
    f"redis://:{CANARY}@host:6379/0",
    f"redis+sentinel://user:{CANARY}@a:1,b:2/primary/0",
    f"amqps://user:{CANARY}@host/%2F?heartbeat=5",
]
SPECIALS = ":/?#[]@!$&'()*+,;=%\\ \"<>^`{|}\x00\n\t\x7fé🎈"


def mutations(text: str) -> Iterator[str]:
    """`text` with one slip outside of its secret: a character lost, doubled, put in or replaced."""
    start = text.index(CANARY)
    for position in (*range(start + 1), *range(start + len(CANARY), len(text))):
        before, behind = text[:position], text[position:]
        if position != start:  # the secret itself stays whole
            yield before + behind[1:]
            yield before + behind[:1] + behind
            for character in SPECIALS:
                yield before + character + behind[1:]
        for character in SPECIALS:
            yield before + character + behind


def everything_shown(error: BaseException) -> str:
    """What a log or a crash report would hold: the traceback with all causes, and the error's own parts."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(error.args) + repr(vars(error))


@pytest.mark.parametrize("text", SECRET_URLS)
def test_a_password_comes_out_of_no_mistyped_url(text: str) -> None:
    tried = 0
    for mutated in mutations(text):
        tried += 1
        try:
            url = StoreURL.parse(mutated)
            shown = repr(url) + str(url) + url.redacted()
        except ConfigError as error:
            shown = everything_shown(error)
        assert CANARY not in shown, mutated
    assert tried > 500


@given(st.sampled_from(SECRET_URLS), st.data())
def test_a_password_comes_out_of_no_garbled_url_that_is_refused(text: str, data: st.DataObject) -> None:
    """Several slips at once may turn a password into a host, which is then shown; a refusal shows nothing."""
    characters = list(text)
    start = text.index(CANARY)
    outside = [n for n in range(len(text)) if not start <= n < start + len(CANARY)]
    for position in data.draw(st.lists(st.sampled_from(outside), min_size=2, max_size=6)):
        characters[position] = data.draw(st.sampled_from(["", *SPECIALS]))
    shown = ""
    try:
        StoreURL.parse("".join(characters))
    except ConfigError as error:
        shown = everything_shown(error)
    assert CANARY not in shown
