"""How scripts reach the server that has their keys, whatever the topology."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeAlias

import redis
from redis.exceptions import NoScriptError

from jobcontract.errors import StoreError, StoreUnavailable
from jobcontract_redis.access import Address, Location, Topology, Wire
from jobcontract_redis.cluster_slots import Slots
from jobcontract_redis.faults import code_of, store_error
from jobcontract_redis.options import RedisOptions
from jobcontract_redis.pool import Command, Pool, Reply
from jobcontract_redis.scripts import Script
from jobcontract_redis.sentinel import find_primary

Answer: TypeAlias = Reply | StoreError


class Call(NamedTuple):
    """One run of one script on the keys of one queue."""

    script: Script
    keys: Sequence[str]
    arguments: Sequence[object]


class Sending(NamedTuple):
    """Commands that go, one behind the other, to the server that has `key`."""

    key: str
    commands: Sequence[Command]


class Link(ABC):
    """The way to the servers. Safe in threads; opens connections on first use."""

    several_slots: ClassVar[bool]
    """Whether one command must not name the keys of two queues."""

    def __init__(self, location: Location, options: RedisOptions) -> None:
        self.location = location
        self.where = location.where
        self._timeout = options.timeout.total_seconds()
        self._pool_size = options.pool_size

    def run(self, calls: Sequence[Call], *, replicas: int = 0) -> list[Reply]:
        """The answer to each call, in order. Raises what the first call that failed comes to.

        With `replicas`, each call is acknowledged when so many replicas have what it wrote.
        """
        answers = self.try_run(calls, replicas=replicas)
        for answer in answers:
            if isinstance(answer, StoreError):
                raise answer
        return answers

    def try_run(self, calls: Sequence[Call], *, replicas: int = 0) -> list[Answer]:
        """`run`, with the error of a call in place of its answer."""
        # A script that the server does not know (it restarted, failed over, was told SCRIPT FLUSH) did not
        # run, and is sent again by its source. Nothing else is ever sent twice.
        answers = self._send_calls(calls, replicas, by_source=False)
        unknown = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            again = self._send_calls([calls[at] for at in unknown], replicas, by_source=True)
            for at, answer in zip(unknown, again, strict=True):
                answers[at] = answer
        return [
            store_error(each, self.where) if isinstance(each, redis.ResponseError) else each
            for each in answers
        ]

    def command(self, key: str, *words: object) -> Reply:
        """The answer to one command on one key."""
        (answer,) = self._send([Sending(key, [words])])
        if isinstance(answer, StoreError):
            raise answer
        if isinstance(answer[0], redis.ResponseError):
            raise store_error(answer[0], self.where)
        return answer[0]

    @abstractmethod
    def ask_each(self, *commands: Command) -> list[list[Reply]]:
        """The answers of every primary to `commands`; a refusal is an answer. Raises `StoreUnavailable`."""

    @abstractmethod
    def connect(self, key: str, *, within: float) -> Wire:
        """A new connection of the caller's own to the server that has `key`. Raises redis-py's errors,
        `StoreError`.
        """

    @abstractmethod
    def look_again(self) -> None:
        """What is known of the servers may be wrong: find them anew at the next call."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    @abstractmethod
    def _send(self, sendings: Sequence[Sending]) -> list[list[Reply] | StoreError]:
        """The answers to each sending. A command that the server refused is answered with its error."""

    def _send_calls(self, calls: Sequence[Call], replicas: int, *, by_source: bool) -> list[Answer]:
        behind: list[Command] = [("WAIT", replicas, round(self._timeout * 500))] if replicas else []
        sendings = [Sending(call.keys[0], [words_of(call, by_source=by_source), *behind]) for call in calls]
        return [self._acknowledged(answer, replicas) for answer in self._send(sendings)]

    def _acknowledged(self, answer: list[Reply] | StoreError, replicas: int) -> Answer:
        if isinstance(answer, StoreError):
            return answer
        if replicas and not isinstance(answer[0], redis.ResponseError):
            followed = answer[1]
            if not isinstance(followed, int) or followed < replicas:
                return StoreUnavailable(
                    f"{self.where} did the work, but only {followed} of {replicas} replicas (wait_replicas) "
                    "confirmed it in time; repeating it is safe"
                )
        return answer[0]


class DirectLink(Link):
    """One server at a time: a single one, or the primary that the Sentinels name."""

    several_slots = False

    def __init__(self, location: Location, options: RedisOptions) -> None:
        super().__init__(location, options)
        self._pool = Pool(self._open, where=self.where, size=self._pool_size, timeout=self._timeout)

    def ask_each(self, *commands: Command) -> list[list[Reply]]:
        return [self._pool.exchange(commands)]

    def connect(self, key: str, *, within: float) -> Wire:
        del key
        return self._open(within)

    def look_again(self) -> None:
        self._pool.drop_idle()

    def close(self) -> None:
        self._pool.close()

    def _send(self, sendings: Sequence[Sending]) -> list[list[Reply] | StoreError]:
        answers = iter(self._pool.exchange([command for sending in sendings for command in sending.commands]))
        found: list[list[Reply] | StoreError] = [
            [next(answers) for _ in sending.commands] for sending in sendings
        ]
        if any(_is_read_only(answer) for answer in found):
            self.look_again()  # the primary became a replica
        return found

    def _open(self, within: float | None = None) -> Wire:
        if self.location.topology is Topology.SENTINEL:
            return find_primary(self.location, within)
        return self.location.access.open(self.location.addresses[0], within)


class ClusterLink(Link):
    """Several primaries, each with its slots."""

    several_slots = True

    def __init__(self, location: Location, options: RedisOptions) -> None:
        super().__init__(location, options)
        self._slots = Slots(location)
        self._pools: dict[Address, Pool] = {}

    def ask_each(self, *commands: Command) -> list[list[Reply]]:
        return [self._pool(address).exchange(commands) for address in self._slots.primaries()]

    def connect(self, key: str, *, within: float) -> Wire:
        return self.location.access.open(self._slots.address_of(key), within)

    def look_again(self) -> None:
        self._slots.forget()

    def close(self) -> None:
        for pool in list(self._pools.values()):
            pool.close()

    def _send(self, sendings: Sequence[Sending]) -> list[list[Reply] | StoreError]:
        found: list[list[Reply] | StoreError] = [[] for _ in sendings]
        left = list(range(len(sendings)))
        for _ in range(3):  # a redirection was not executed: following it is no retry
            self._send_by_node(sendings, left, found)
            left = [at for at in left if _is_moved(found[at])]
            if not left:
                break
            self.look_again()
        return found

    def _send_by_node(
        self, sendings: Sequence[Sending], which: Sequence[int], found: list[list[Reply] | StoreError]
    ) -> None:
        by_node: dict[Address, list[int]] = {}
        for at in which:
            try:
                by_node.setdefault(self._slots.address_of(sendings[at].key), []).append(at)
            except StoreError as error:
                found[at] = error
        for address, positions in by_node.items():
            commands = [command for at in positions for command in sendings[at].commands]
            try:
                answers = iter(self._pool(address).exchange(commands))
            except StoreError as error:
                self.look_again()  # the node may be down, and a replica in its place
                for at in positions:
                    found[at] = error
            else:
                for at in positions:
                    found[at] = [next(answers) for _ in sendings[at].commands]

    def _pool(self, address: Address) -> Pool:
        pool = self._pools.get(address)
        if pool is None:
            new = Pool(
                lambda: self.location.access.open(address),
                where=f"{self.where} (node {address})",
                size=self._pool_size,
                timeout=self._timeout,
            )
            pool = self._pools.setdefault(address, new)  # of two threads, the second one's was never used
        return pool


def open_link(location: Location, options: RedisOptions) -> Link:
    """The link for `location`. Contacts nothing."""
    return (ClusterLink if location.topology is Topology.CLUSTER else DirectLink)(location, options)


def words_of(call: Call, *, by_source: bool) -> list[object]:
    """The command that runs `call`."""
    program = ["EVAL", call.script.source] if by_source else ["EVALSHA", call.script.digest]
    return [*program, len(call.keys), *call.keys, *call.arguments]


def _is_read_only(answer: list[Reply] | StoreError) -> bool:
    return _first_code(answer) == "READONLY"


def _is_moved(answer: list[Reply] | StoreError) -> bool:
    return _first_code(answer) == "MOVED"


def _first_code(answer: list[Reply] | StoreError) -> str:
    first = answer[0] if isinstance(answer, list) else None
    return code_of(first) if isinstance(first, redis.ResponseError) else ""
