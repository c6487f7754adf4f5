"""The Lua files: what their headers say is what they are given and what they do."""

from __future__ import annotations

import re
from importlib import resources

import pytest
from jobcontract_redis import scripts
from jobcontract_redis.scripts import Script

from tests.servers.redis import RedisServer

ALL = {name.lower(): found for name, found in vars(scripts).items() if isinstance(found, Script)}
FOLDER = resources.files("jobcontract_redis") / "lua"


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.lua").read_text(encoding="utf-8")


def test_every_file_is_a_script_and_every_script_a_file() -> None:
    files = {entry.name.removesuffix(".lua") for entry in FOLDER.iterdir() if entry.name.endswith(".lua")}
    assert files == set(ALL)
    assert {script.name for script in ALL.values()} == files


@pytest.mark.parametrize("name", ALL)
def test_the_server_compiles_it_under_the_digest_we_call_it_by(name: str, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        digest = client.script_load(ALL[name].source)
    assert digest in (ALL[name].digest, ALL[name].digest.decode())


@pytest.mark.parametrize("name", ALL)
def test_its_header_names_each_key_with_its_type(name: str) -> None:
    text = text_of(name)
    header = re.match(r"(?:--.*\n)+", text)
    assert header is not None, "a script begins with what it does"
    documented = re.findall(r"^-- KEYS\[(\d+)\] +(\w+) +(ZSET|HASH|STRING|SET)\b", header[0], re.MULTILINE)
    used = {int(number) for number in re.findall(r"KEYS\[(\d+)\]", text[header.end() :])}
    assert [int(number) for number, _, _ in documented] == list(range(1, len(ALL[name].keys) + 1))
    assert used == set(range(1, len(documented) + 1)), (
        "a key is given that is not used, or used and not given"
    )
    source = ALL[name].source.decode()
    for letter in "bj":
        assert (f"prefix..{letter}:id" in header[0]) == (f"prefix .. '{letter}:'" in source)
