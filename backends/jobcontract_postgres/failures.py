"""psycopg's errors as the contract's: whether trying again can help, in one sentence, without a password."""

from __future__ import annotations

import re

import psycopg

from jobcontract.errors import InstallationError, StoreError, StoreUnavailable

# Classes and codes of https://www.postgresql.org/docs/current/errcodes-appendix.html after which the same
# call may succeed.
_TRANSIENT_CLASSES = ("08", "53")
_TRANSIENT = frozenset(
    {
        "25006",  # read_only_sql_transaction: a primary that was demoted
        "25P03",  # idle_in_transaction_session_timeout
        "40001",  # serialization_failure
        "40P01",  # deadlock_detected
        "55P03",  # lock_not_available
        "57014",  # query_canceled, by a statement_timeout
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
    }
)
_MISSING_OBJECT = frozenset({"3F000", "42P01", "42703", "42883"})
_LONGEST = 500
_TELLING = 4

# A failed connection has no code in psycopg, only the server's words. Unknown ones, and those of a server
# that speaks another language, count as transient.
_LASTING = re.compile(
    r"password authentication failed|no password supplied|authentication failed|no pg_hba\.conf entry"
    r"|(role|database) \"[^\"]*\" does not exist|permission denied for database|is not permitted to log in"
    r"|does not support SSL|certificate verify failed|root certificate|certificate .*does not match"
    r"|no encryption|could not (read|load|open) .*(certificate|private key)",
    re.DOTALL,
)
_NOISE = re.compile(r"^connection (failed|is bad): |\n\s*Is the server running [^\n]*\?")
_ABOUT_TLS = re.compile(r"SSL|TLS|certificate")


class DeadlineExceeded(psycopg.OperationalError):
    """The server did not answer within the deadline of the call."""


def find_client_error(error: BaseException) -> psycopg.Error | None:
    """psycopg's error in what another library made of it: SQLAlchemy keeps it as `orig`, Django as cause."""
    for candidate in (error, getattr(error, "orig", None), error.__cause__):
        if isinstance(candidate, psycopg.Error):
            return candidate
    return None


def is_missing_object(error: psycopg.Error) -> bool:
    """Whether a schema, table, column or function was not there: perhaps nobody ran `jobctl init`."""
    return error.sqlstate in _MISSING_OBJECT


def from_statement(error: psycopg.Error, where: str) -> StoreError:
    """What to raise for an error of a statement on `where`. Leaves out the detail, which may quote a job's
    input.
    """
    if isinstance(error, DeadlineExceeded):
        return StoreUnavailable(f"{where} {error}")
    code = error.sqlstate
    said = _one_line(error.diag.message_primary or str(error))
    if code is None:
        # The connection broke, or psycopg refused before it sent anything.
        lost = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        kind = StoreUnavailable if lost else StoreError
        return kind(f"the connection to {where} failed: {said}")
    if code in _MISSING_OBJECT:
        return InstallationError(
            f"the jobcontract schema of {where} is missing or of another version ({said}); run `jobctl init`"
        )
    transient = code in _TRANSIENT or code[:2] in _TRANSIENT_CLASSES
    return (StoreUnavailable if transient else StoreError)(f"{where} refused: {said} ({code})")


def from_connecting(error: psycopg.Error, where: str, password: str | None) -> StoreError:
    """What to raise when no connection to `where` could be made: libpq's words, without the password."""
    # libpq's second line only asks whether the server runs, and psycopg's prefix says the same as we do.
    said = _one_line(_NOISE.sub("", str(error)))
    if password and len(password) >= _TELLING:  # a shorter one's stars would show where its letters are
        said = said.replace(password, "***")
    if not _LASTING.search(said):
        return StoreUnavailable(f"can't connect to {where}: {said}", nothing_written=True)
    remedy = "; sslmode says how much TLS this store asks for" if _ABOUT_TLS.search(said) else ""
    return StoreError(f"can't connect to {where}: {said}{remedy}")


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
