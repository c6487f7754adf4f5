"""JSON text that every store can hold, and the nearest storable text for errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobcontract.jsontext import (
    UnstorableText,
    check_text,
    dump_flat_json,
    dump_json,
    fingerprint,
    is_encodable,
    storable,
)
from tests.contract.strategies import json_values

MARK = "\n[...]\n"


@given(json_values())
def test_what_is_written_is_read_back_exactly(value: Any) -> None:
    text = dump_json(value)
    assert json.dumps(json.loads(text)) == json.dumps(value)
    assert dump_json(json.loads(text)) == text
    text.encode()
    assert "\x00" not in text


@given(
    st.recursive(json_values() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_any_value_is_storable_or_refused(value: Any) -> None:
    """There is no third outcome: what is not refused can be encoded, holds no NUL and can be read again."""
    try:
        text = dump_json(value)
    except UnstorableText:
        return
    text.encode()
    assert "\\u0000" not in text.replace("\\\\", "")
    json.loads(text)


@given(st.dictionaries(st.text(), st.text() | st.integers() | json_values()))
@example({"name": '\x00\x01\x1f\x7f\u2028/\\"\U0001f600'})
@example({"name": "\ud800"})
@example({"\udfff": 1})
@example({"size": 10**4300})
@example({"size": 1e16, "none": None, "true": True})
def test_a_flat_object_is_written_or_refused_as_any_value(value: dict[str, Any]) -> None:
    assert outcome(dump_flat_json, value) == outcome(dump_json, value)


def outcome(write: Callable[[dict[str, Any]], str], value: dict[str, Any]) -> str:
    try:
        return write(value)
    except UnstorableText as error:
        return f"refused: {error}"


def test_characters_are_not_escaped() -> None:
    assert dump_json({"name": "Zoë 🎈"}) == '{"name":"Zoë 🎈"}'


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "the value is nan, which is not JSON"),
        ({"a": [1, float("-inf")]}, "a[1] is -inf, which is not JSON"),
        ({"a": {"b": "x\x00y"}}, "a.b holds NUL (U+0000) at position 1, which can't be stored"),
        ({"a": {"x\x00": 1}}, "a key of a holds NUL (U+0000) at position 1, which can't be stored"),
        (["\ud83d"], "[0] holds a lone surrogate, which can't be encoded as UTF-8"),
        ({"a": 10**4300}, "a is an integer of more than 4300 digits"),
        ({"k" * 1000: float("nan")}, "k" * 77 + "... is nan, which is not JSON"),
        ({"a": object()}, "can't be written as JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused_is_named_by_its_path(value: object, reason: str) -> None:
    if reason == "can't be written as JSON":
        with pytest.raises(TypeError):  # not a JSON type at all: `Job` refuses it before
            dump_json(value)
        return
    with pytest.raises(UnstorableText) as caught:
        dump_json(value)
    assert str(caught.value) == reason


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(UnstorableText, match="deeper than 64"):
        dump_json(cycle)


@pytest.mark.parametrize(("levels", "allowed"), [(63, True), (64, True), (65, False), (3000, False)])
def test_nesting_has_an_end(levels: int, allowed: bool) -> None:
    value: object = 0
    for _ in range(levels):
        value = [value]
    if allowed:
        assert dump_json(value).count("[") == levels
    else:
        with pytest.raises(UnstorableText, match="deeper than 64"):
            dump_json(value)


def test_wide_values_are_not_taken_for_deep_ones() -> None:
    assert len(json.loads(dump_json([[0] for _ in range(1000)]))) == 1000


@pytest.fixture
def no_integer_limit() -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.usefixtures("no_integer_limit")
def test_an_application_without_pythons_limit_writes_nothing_that_others_cant_read() -> None:
    with pytest.raises(UnstorableText, match="more than 4300 digits"):
        dump_json({"a": 10**5000})


def test_check_text_gives_good_text_back() -> None:
    assert check_text("Zoë 🎈\n") == "Zoë 🎈\n"


@given(st.text())
def test_is_encodable_says_what_encode_says(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        assert not is_encodable(text)
    else:
        assert is_encodable(text)


@given(st.text(st.characters(), max_size=200), st.integers(40, 300))
def test_every_error_text_becomes_storable(text: str, most: int) -> None:
    kept = storable(text, max_bytes=most)
    assert len(kept.encode()) <= most
    assert "\x00" not in kept


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=50))
def test_a_good_error_text_is_kept_as_it_is(text: str) -> None:
    assert storable(text, max_bytes=200) == text


def test_an_error_text_loses_only_what_cant_be_stored() -> None:
    assert storable("a\x00b", max_bytes=100) == "a\ufffdb"
    lone = storable("a\ud800b", max_bytes=100)
    assert (lone[0], lone[-1], set(lone[1:-1])) == ("a", "b", {"\ufffd"})


@pytest.mark.parametrize("character", ["x", "é", "🎈", "\x00", "\ud800"])
def test_a_huge_error_text_keeps_its_head_and_its_tail(character: str) -> None:
    kept = storable("HEAD" + character * 10_000_000 + "TAIL", max_bytes=8192)
    assert len(kept.encode()) <= 8192
    assert kept.startswith("HEAD")
    assert kept.endswith("TAIL")
    assert MARK in kept


def test_the_fingerprint_tells_inputs_apart() -> None:
    different = [
        fingerprint("k", {}),
        fingerprint("l", {}),
        fingerprint("k", {"a": 1}),
        fingerprint("k", {"a": 1.0}),
        fingerprint("k", {"a": "1"}),
        fingerprint("k", {"a": True}),
        fingerprint("k", {"a": None}),
        fingerprint("k", {"a": 0.0}),
        fingerprint("k", {"a": -0.0}),
        fingerprint("k", {"a": [1]}),
        fingerprint("k\n{}", {}),
    ]
    assert len(set(different)) == len(different)
    assert {len(each) for each in different} == {16}


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers()))
def test_the_fingerprint_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    assert fingerprint("k", value) == fingerprint("k", dict(reversed(value.items())))


def test_the_fingerprint_is_the_same_in_every_version_and_process() -> None:
    """It is stored: a change of the algorithm would make every repeated registration a conflict."""
    assert fingerprint("k", {"a": [1, "é"]}).hex() == "66b1865d2780783d7d7fcfa4c17dda38"
