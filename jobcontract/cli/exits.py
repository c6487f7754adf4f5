"""What the exit codes of `jobctl` mean, and the one error that a command raises to choose among them."""

from __future__ import annotations

from enum import IntEnum

from jobcontract.errors import ConfigError, InvalidJob, JobContractError, Unsupported


class Exit(IntEnum):
    """The exit codes. Documented by ``jobctl --help`` and docs/cli.md from `MEANINGS`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_APPLICABLE = 3
    RESUMABLE = 4
    INTERRUPTED = 130
    CLOSED_PIPE = 141


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "the operation failed (the store can't be reached or refused), or was declined when asked",
    Exit.USAGE: "bad usage, bad input or a bad setting; nothing was changed",
    Exit.NOT_APPLICABLE: "not found, or not applicable: no such job, a job in another state, a key that "
    "another job holds, a store that can't do it, two stores that differ",
    Exit.RESUMABLE: "interrupted or held up, and nothing is lost: the same command goes on",
    Exit.INTERRUPTED: "interrupted (Ctrl-C, SIGTERM)",
    Exit.CLOSED_PIPE: "the reader of the output went away (| head)",
}


class CommandFailed(Exception):
    """Ends the command with one sentence on standard error and `code`. Without a sentence, quietly."""

    def __init__(self, sentence: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(sentence)
        self.code = code


def code_of(error: Exception) -> Exit:
    """The exit code that tells what kind of failure `error` is."""
    if isinstance(error, CommandFailed):
        return error.code
    if isinstance(error, (ConfigError, InvalidJob)):
        return Exit.USAGE
    if isinstance(error, Unsupported):
        return Exit.NOT_APPLICABLE
    return Exit.FAILED


def sentence_of(error: Exception) -> str:
    """`error` as a sentence for people: the errors of jobcontract speak for themselves."""
    if isinstance(error, (CommandFailed, JobContractError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"unexpected {type(error).__name__}: {error} (run it again with -v for the traceback)"
