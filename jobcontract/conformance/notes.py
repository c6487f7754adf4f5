"""`Notes`: texts that outlive every process, each written by one of those who expect the same."""

from __future__ import annotations

from functools import partial

import pytest

from jobcontract.conformance.chapter import Chapter
from jobcontract.conformance.selection import lacks, needs
from jobcontract.conformance.store import Store
from jobcontract.errors import InvalidJob, Unsupported

_WRITERS = 8


class NotesChapter(Chapter):
    """Feature "notes"."""

    @needs("notes")
    def test_a_note_is_read_as_it_was_written_by_every_client(self, store: Store) -> None:
        text = '{"after": "2026-11-30T02:00Z", "name": "\u00e9\u4e2d\U0001f600 %s %(x)s \\\\"}'
        assert store.notes.write_note("schedule:a", text, None)
        found = store.notes_of(store.another_client()).read_notes(["schedule:a", "schedule:b"])
        assert found.values == {"schedule:a": text}

    @needs("notes")
    def test_an_empty_note_is_a_note(self, store: Store) -> None:
        assert store.notes.write_note("empty", "", None)
        assert store.notes.read_notes(["empty"]).values == {"empty": ""}
        assert not store.notes.write_note("empty", "x", None)
        assert store.notes.write_note("empty", "x", "")

    @needs("notes")
    def test_a_note_is_written_only_while_it_says_what_is_expected(self, store: Store) -> None:
        notes = store.notes
        assert not notes.write_note("a", "1", "0"), "there is no such note"
        assert notes.write_note("a", "1", None)
        assert not notes.write_note("a", "2", None), "there is one already"
        assert not notes.write_note("a", "2", "0"), "it says something else"
        assert notes.read_notes(["a"]).values == {"a": "1"}
        assert notes.write_note("a", "2", "1")
        assert notes.read_notes(["a"]).values == {"a": "2"}

    @needs("notes")
    def test_of_several_who_expect_the_same_one_writes(self, store: Store) -> None:
        writers = [store.notes_of(store.another_client()) for _ in range(_WRITERS)]
        for expected in (None, *(f"round {number}" for number in range(4))):
            said = f"round {0 if expected is None else int(expected[6:]) + 1}"
            wrote = store.at_once(*(partial(each.write_note, "a", said, expected) for each in writers))
            assert sorted(wrote) == [False] * (_WRITERS - 1) + [True]
            assert store.notes.read_notes(["a"]).values == {"a": said}

    @needs("notes")
    def test_the_clock_is_the_store_s(self, store: Store) -> None:
        before = store.now()
        read = store.notes.read_notes(["a"]).now
        after = store.now()
        # To the resolution of the coarsest clock: a millisecond.
        assert (read - before).total_seconds() >= -0.001
        assert (after - read).total_seconds() >= -0.001

    @needs("notes")
    def test_what_can_t_be_stored_is_refused_before_it_is_sent(self, store: Store) -> None:
        for name, text in (("", ""), ("n" * 257, ""), ("a\x00", ""), ("a", "\ud800"), ("a", "x" * 65537)):
            with pytest.raises(InvalidJob, match=r"^(name|text)\b"):
                store.backend.write_note(name, text, expected=None)
        assert store.backend.write_note("n" * 256, "x" * 65536, expected=None)

    @lacks("notes")
    def test_without_notes_they_are_refused(self, store: Store) -> None:
        with pytest.raises(Unsupported, match="notes"):
            store.backend.read_notes(["a"])
        with pytest.raises(Unsupported, match="notes"):
            store.backend.write_note("a", "1", expected=None)
