"""What a coordinator says instead of doing it: each sentence names the command that leads on."""

from __future__ import annotations

from jobcontract_migrate.control import Move


def already_under_way(move: Move) -> str:
    """Instead of beginning another one."""
    return (
        f"a migration from {move.source!r} to {move.target!r} is under way ({move.state.value}); finish it "
        "with `jobctl migrate complete`, or go back with `jobctl migrate reverse` or `abort`"
    )


def why_not_compared(move: Move) -> str:
    """Of a migration to a store without lookup."""
    return (
        f"jobs at {move.target} can't be looked up; each was confirmed by it before its trace at "
        f"{move.source} was made"
    )


def instead_of_reverse(move: Move) -> str:
    """Before the cut-over."""
    return (
        f"nothing was moved yet ({move.state.value}); `jobctl migrate abort` gives up, "
        "`jobctl migrate resume` goes on"
    )


def instead_of_abort(move: Move) -> str:
    """After the cut-over."""
    return (
        f"jobs are registered at {move.home!r} already ({move.state.value}); `jobctl migrate reverse` brings "
        "them back"
    )


def instead_of_complete(move: Move) -> str:
    """Before it is sealed."""
    return (
        f"it can only be completed when it is sealed, and it is {move.state.value}; "
        "`jobctl migrate resume` goes on"
    )
