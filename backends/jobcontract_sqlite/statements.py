"""The SQL, one statement per file; the file's name is the verb's, or the verb's and the step's."""

from __future__ import annotations

from importlib.resources import files


def _read(name: str) -> str:
    return (files("jobcontract_sqlite") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


BURY = _read("bury")
CHANGE_NOTE = _read("change_note")
CLAIM = _read("claim")
COMPLETE = _read("complete")
EXTEND = _read("extend")
FAIL_DEAD = _read("fail_dead")
FAIL_RETRY = _read("fail_retry")
JOBS_DEAD = _read("jobs_dead")
JOBS_DONE = _read("jobs_done")
JOBS_LIVE = _read("jobs_live")
LEAVE = _read("leave")
NEXT_DUE = _read("next_due")
PAUSE = _read("pause")
PRUNE_DEAD = _read("prune_dead")
PRUNE_DONE = _read("prune_done")
PRUNE_KEYS = _read("prune_keys")
READ_NOTES = _read("read_notes")
REGISTER = _read("register")
REGISTER_KEYS = _read("register_keys")
REGISTER_KNOWN = _read("register_known")
RELEASE = _read("release")
REQUEUE = _read("requeue")
REQUEUE_LEAVE = _read("requeue_leave")
REQUEUE_READY = _read("requeue_ready")
RESCUE = _read("rescue")
RESUME = _read("resume")
STATES = _read("states")
STATS = _read("stats")
WRITE_NOTE = _read("write_note")
