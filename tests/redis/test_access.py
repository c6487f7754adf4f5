"""What a URL and the options mean; nothing is contacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from jobcontract_redis.access import Address, Location, Topology, locate, pack
from jobcontract_redis.options import RedisOptions

from jobcontract.config import Settings, StoreSettings
from jobcontract.errors import ConfigError
from jobcontract.registry import get_backend
from jobcontract.url import StoreURL


def located(url: str, **options: Any) -> Location:
    settings = StoreSettings("redis", StoreURL.parse(url), options)
    return locate(settings, settings.read_options(RedisOptions))


@pytest.mark.parametrize(
    ("url", "topology", "addresses", "service", "database"),
    [
        ("redis://", Topology.SINGLE, [("localhost", 6379)], "", 0),
        ("redis://h", Topology.SINGLE, [("h", 6379)], "", 0),
        ("redis://h:1/5", Topology.SINGLE, [("h", 1)], "", 5),
        ("rediss://[::1]:2/", Topology.SINGLE, [("::1", 2)], "", 0),
        ("redis+sentinel://a,b:1/main", Topology.SENTINEL, [("a", 26379), ("b", 1)], "main", 0),
        ("redis+sentinel://a/main/3", Topology.SENTINEL, [("a", 26379)], "main", 3),
        ("rediss+sentinel://a/my%2Fmain", Topology.SENTINEL, [("a", 26379)], "my", None),
        ("redis+cluster://a,b", Topology.CLUSTER, [("a", 6379), ("b", 6379)], "", 0),
        ("rediss+cluster://a/0", Topology.CLUSTER, [("a", 6379)], "", 0),
    ],
)
def test_a_url_names_servers(
    url: str, topology: Topology, addresses: list[tuple[str, int]], service: str, database: int | None
) -> None:
    if database is None:
        with pytest.raises(ConfigError, match="database number"):
            located(url)
        return
    found = located(url)
    assert found.topology is topology
    assert found.addresses == tuple(Address(*each) for each in addresses)
    assert found.service == service
    assert found.access.arguments["db"] == database
    assert found.access.encrypted is url.startswith("rediss")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://a,b", r"one host; for several write redis\+sentinel:// or redis\+cluster://"),
        ("rediss://a,b", r"rediss\+sentinel:// or rediss\+cluster://"),
        (
            "redis+sentinel://a",
            r"names the service behind its hosts: redis\+sentinel://host1,host2/mymaster/0",
        ),
        ("redis://a/x", "ends with a database number"),
        ("redis://a/1/2", "ends with a database number"),
        ("redis://a/-1", "ends with a database number"),
        ("redis+cluster://a/1", "a cluster has database 0 only"),
        ("redis://a?tls_ca=/x", "'tls_ca' is set, and the URL is not encrypted; write rediss"),
        ("rediss://a?tls_ca=/no/such/file", "'tls_ca' can't be read: /no/such/file"),
        ("rediss://a?tls_cert=/x", "'tls_cert' and 'tls_key' belong together"),
        ("redis://a?namespace=a%7Bb", "'namespace'"),
        ("redis://a?namespace=a:b", "'namespace'"),
        ("redis://a?namespase=a", "did you mean 'namespace'?"),
        ("redis://a?timeout=0s", "'timeout'"),
        ("redis://a?pool_size=0", "'pool_size'"),
        ("redis://a?wait_replicas=-1", "'wait_replicas'"),
        ("redis://a?db=3", "'db' is not a setting"),
    ],
)
def test_a_url_that_means_nothing_is_one_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        located(url)


@pytest.mark.parametrize(
    "scheme",
    ["redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"],
)
def test_every_scheme_is_found_by_configuration_alone(scheme: str) -> None:
    path = "/main" if "sentinel" in scheme else ""
    settings = Settings(backends={"queue": {"url": f"{scheme}://localhost{path}"}})  # type: ignore[dict-item]
    with get_backend("queue", settings=settings) as backend:
        assert backend.name == "queue"


@pytest.mark.parametrize(
    ("url", "exposed"),
    [
        ("redis://localhost", False),
        ("redis://127.0.0.1", False),
        ("redis://[::1]", False),
        ("redis://10.0.0.1", True),
        ("redis://redis.internal", True),
        ("redis+cluster://127.0.0.1,10.0.0.1", True),
        ("rediss://10.0.0.1", False),
    ],
)
def test_what_crosses_a_network_in_plain_text(url: str, exposed: bool) -> None:
    assert located(url).exposed is exposed


def test_tls_verifies_the_certificate_and_the_host(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    arguments = located("rediss://h", tls_ca=str(authority)).access.arguments
    assert arguments["ssl_cert_reqs"] == "required"
    assert arguments["ssl_check_hostname"] is True
    assert arguments["ssl_ca_certs"] == str(authority)


def test_sentinels_have_credentials_of_their_own() -> None:
    found = located("redis+sentinel://u:p@h/main", sentinel_username="s", sentinel_password="q")
    assert (found.access.arguments["username"], found.access.arguments["password"]) == ("u", "p")
    assert (found.sentinel_access.arguments["username"], found.sentinel_access.arguments["password"]) == (
        "s",
        "q",
    )


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_a_password_is_shown_nowhere(rest: str) -> None:
    password = f"canary{rest}"
    found = located(f"redis+sentinel://user:{quote(password, safe='')}@h/main", sentinel_password=password)
    assert found.access.arguments["password"] == password
    assert "canary" not in f"{found!r} {found} {found.where}"


@given(st.lists(st.lists(st.text() | st.binary() | st.integers())), st.sampled_from([0, 1, 16_384]))
def test_commands_are_packed_as_the_client_packs_them(words: list[list[object]], length: int) -> None:
    commands = [["SET", *some, "ü" * length, b"x" * length, "after"] for some in words]
    client = cast(Any, redis.Connection)()
    assert b"".join(pack(commands)) == b"".join(client.pack_commands(commands))
