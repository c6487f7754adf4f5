"""docs/guarantees.md says what the last runs of the laboratory gave, and those covered all that there is."""

from __future__ import annotations

from tests.faults.figures import read
from tests.faults.guarantees import DOCUMENT, render
from tests.faults.scenarios import ATTACKS, COUNTED, HARD, MOVES, SCENARIOS


def test_the_page_is_made_of_the_figures() -> None:
    assert DOCUMENT.read_text() == render(read()), "run: python -m tests.faults.guarantees"


def test_only_known_scenarios_have_figures() -> None:
    assert {each["scenario"] for each in read()} <= set(SCENARIOS)


def test_nothing_that_is_promised_was_broken() -> None:
    names = {scenario.name for scenario in (*ATTACKS, *MOVES, *HARD)}
    judged = [each for each in read() if each["scenario"] in names]
    assert judged
    assert [each["scenario"] for each in judged if each["violations"]] == []
    assert [each["scenario"] for each in judged if each.get("thin")] == [], "they prove nothing"


def test_every_red_control_was_found_out() -> None:
    for each in (each for each in read() if each["must_break"]):
        assert {int(number) for number in each["broken"]} & set(each["must_break"]), each["scenario"]


def test_what_is_not_promised_was_counted() -> None:
    names = {scenario.name for scenario in COUNTED}
    assert all(each["acknowledged"] > 100 for each in read() if each["scenario"] in names)
