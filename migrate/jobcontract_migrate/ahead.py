"""One page ahead: a store is asked for its next page while the other one is busy with the last."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def one_ahead(pages: Iterator[Item]) -> Iterator[Item]:
    """The same `pages`, of which another thread makes the next one meanwhile. What it raises comes in its
    place. At most one is made that nobody asks for.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="one-ahead") as reader:
        coming = reader.submit(next, pages, None)
        while (page := coming.result()) is not None:
            coming = reader.submit(next, pages, None)
            yield page
