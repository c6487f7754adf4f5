"""The applications' connections of `tests.connections`, as the suite wants them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from functools import partial

from jobcontract.conformance import Transactions
from tests.connections.callers import Caller


def transactions_of(kinds: Iterable[Callable[[str], Caller]], url: str) -> Transactions:
    """By the name of each kind, what opens a transaction on the store at `url`."""
    return {getattr(kind, "__name__", str(kind)): partial(_transaction, kind, url) for kind in kinds}


@contextmanager
def _transaction(kind: Callable[[str], Caller], url: str) -> Generator[object]:
    caller = kind(url)
    connection = caller.begin()
    with closing(caller):
        try:
            yield connection
        except BaseException:
            caller.rollback()
            raise
        caller.commit()
