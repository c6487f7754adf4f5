"""The topology, as data: what the names mean, and that a delay takes the time it says."""

from __future__ import annotations

import re
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st
from jobcontract_rabbitmq.topology import (
    DELAY_BITS,
    Address,
    Binding,
    Exchange,
    Queue,
    Topology,
    whole_seconds,
)

queue_names = st.from_regex(r"[a-z0-9_.\-]{1,64}", fullmatch=True)
addresses = st.builds(Address, queue_names, st.integers(0, 2))
LONGEST = timedelta(days=366 * 10)


def travelled(topology: Topology, delay: timedelta, address: Address) -> tuple[int, set[str]]:
    """Where a message for `delay` ends, and after how many milliseconds, by the bindings alone."""
    objects = list(topology.objects([address.queue]))
    expiries = {each.name: each.arguments for each in objects if isinstance(each, Queue)}
    kinds = {each.name: each.type for each in objects if isinstance(each, Exchange)}
    bindings = [each for each in objects if isinstance(each, Binding)]
    exchange, key = topology.to_ready_in(delay, address)
    waited = 0
    while True:
        found = [
            each
            for each in bindings
            if each.source == exchange and matches(kinds[exchange], each.pattern, key)
        ]
        if not any(each.to_exchange or "x-message-ttl" in expiries[each.destination] for each in found):
            return waited, {each.destination for each in found}
        (binding,) = found
        if binding.to_exchange:
            exchange = binding.destination
        else:
            waited += int(expiries[binding.destination]["x-message-ttl"])
            exchange = str(expiries[binding.destination]["x-dead-letter-exchange"])


def matches(kind: str, pattern: str, key: str) -> bool:
    """Whether an exchange of this type takes `key` for `pattern`, whose ``#`` comes first or last."""
    if kind == "direct":
        return pattern == key
    words = re.escape(pattern).replace(r"\*", r"[^.]*")
    return re.fullmatch(words.replace(r"\#\.", r"(.*\.)?").replace(r"\.\#", r"(\..*)?"), key) is not None


@given(st.timedeltas(timedelta(), LONGEST), addresses)
def test_a_delay_takes_its_time_in_whole_seconds_and_ends_at_its_address(
    delay: timedelta, address: Address
) -> None:
    topology = Topology("jobcontract", 3)
    waited, queues = travelled(topology, delay, address)
    assert waited == whole_seconds(delay) * 1000
    assert delay <= timedelta(milliseconds=waited) < delay + timedelta(seconds=1)
    assert queues == {topology.ready_queue(address)}


@given(st.lists(addresses, min_size=2, max_size=2, unique=True))
def test_two_addresses_never_share_a_queue_or_a_word(pair: list[Address]) -> None:
    topology = Topology("jobcontract", 3)
    one, other = pair
    assert topology.ready_queue(one) != topology.ready_queue(other)
    assert one.word != other.word
    assert "." not in one.word


@given(addresses)
def test_every_name_and_key_fits_into_amqp(address: Address) -> None:
    topology = Topology("n" * 32, 3)
    names = [each.name for each in topology.objects([address.queue]) if not isinstance(each, Binding)]
    route = topology.to_ready_in(LONGEST, address)
    assert max(len(name.encode()) for name in [*names, *route]) <= 255


def test_every_queue_is_a_quorum_queue_that_drops_nothing() -> None:
    queues = [each for each in Topology("jobcontract", 3).objects(["default"]) if isinstance(each, Queue)]
    assert len(queues) == DELAY_BITS + 4
    for queue in queues:
        assert queue.arguments["x-queue-type"] == "quorum"
        # -1 is "unlimited" for 4.x, and "at the first redelivery" for 3.10.
        assert int(queue.arguments["x-delivery-limit"]) > 1_000_000
        if "x-dead-letter-exchange" in queue.arguments:
            assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"
            assert queue.arguments["x-overflow"] == "reject-publish"


def test_every_name_carries_the_version_of_the_layout() -> None:
    for each in Topology("ours", 3).objects(["default"]):
        if not isinstance(each, Binding):
            assert each.name.startswith("ours.v1.")
