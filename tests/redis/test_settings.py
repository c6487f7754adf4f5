"""What the driver declares of a server follows that server's settings, as far as this user may read them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import quote

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.contract import Durability, TimedLease, Transactional
from jobcontract.errors import ConfigError, StoreError
from tests.redis.stores import HOUR, QUEUE, connect, counts, leases_of, open_store, records, until
from tests.servers.binaries import Programs
from tests.servers.process import DEFAULT_PASSWORD
from tests.servers.redis import RedisServer

USER = "worker"
USER_PASSWORD = "w@rker/secret:1%"

# The commands that the scripts and the driver use, and no others.
COMMANDS = [
    "+eval", "+evalsha", "+time", "+wait", "+bzpopmin", "+hget", "+hmget", "+hset", "+hsetnx",
    "+hdel", "+hexists", "+hincrby", "+get", "+mget", "+set", "+getrange", "+del", "+exists",
    "+zadd", "+zrem", "+zcard", "+zcount", "+zscore", "+zmscore", "+zrange", "+zrangebyscore",
    "+zrangebylex", "+zrevrangebylex", "+sadd", "+smembers", "+smismember", "+select",
]  # fmt: skip


@contextmanager
def declared(server: RedisServer, **options: Any) -> Generator[RedisDriver]:
    driver = open_store(server.url(), **options)
    try:
        yield driver
    finally:
        driver.close()


# -- Durability ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fsync", "durability", "note"),
    [
        ("always", Durability.FSYNC, None),
        ("everysec", Durability.WINDOW, "appendfsync is everysec"),
        ("no", Durability.WINDOW, "appendfsync is no"),
    ],
)
def test_durability_follows_appendfsync(
    own_server: RedisServer, fsync: str, durability: Durability, note: str | None
) -> None:
    own_server.ask("CONFIG SET", "appendfsync", fsync)
    with declared(own_server) as driver:
        assert driver.capabilities.durability is durability
        said = [each for each in driver.capabilities.notes if "appendfsync" in each]
        assert said if note else not said
        assert all(note in each for each in said if note)


def test_a_server_without_an_append_only_file_is_refused(redis_programs: Programs) -> None:
    with RedisServer(programs=redis_programs, appendonly=False) as server:
        driver = connect(server.url())
        for call in (driver.install, driver.stats, lambda: driver.register(records(1))):
            with pytest.raises(ConfigError, match=r"append-only file.*accept_loss"):
                call()
        assert server.ask("DBSIZE") == 0
        driver.close()


def test_a_server_without_an_append_only_file_is_taken_when_the_loss_is_accepted(
    redis_programs: Programs,
) -> None:
    with (
        RedisServer(programs=redis_programs, appendonly=False) as server,
        declared(server, accept_loss="yes") as driver,
    ):
        assert driver.capabilities.durability is Durability.MEMORY
        assert any("append-only file" in note for note in driver.capabilities.notes)
        assert driver.register(records(1))[0].created


@pytest.mark.parametrize("fsync", ["always", "no", "everysec"])
def test_what_was_acknowledged_survives_a_kill(redis_programs: Programs, fsync: Any) -> None:
    with RedisServer(programs=redis_programs, appendfsync=fsync) as server, declared(server) as driver:
        for _ in range(20):
            driver.register(records(50))
        if fsync == "everysec":  # it may answer before it writes, while a sync is under way; see the note
            until(lambda: server.information("persistence")["aof_buffer_length"] == 0, "it does not write")
        server.kill()
        server.start()
        assert counts(driver) == {"ready": 1000}


def test_what_is_declared_beside_durability(own_server: RedisServer) -> None:
    with declared(own_server) as driver:
        found = driver.capabilities
        version = own_server.information("server")
        assert found.store in (f"Redis {version['redis_version']}", f"Valkey {version.get('valkey_version')}")
        assert isinstance(found.lease, TimedLease)
        assert found.priority_levels == 10
        assert found.transactional is Transactional.NONE
        assert not any("may not read" in note for note in found.notes)


# -- Users -----------------------------------------------------------------------------------------------


def user_url(server: RedisServer, namespace: str = "jobcontract") -> str:
    return (
        f"redis://{USER}:{quote(USER_PASSWORD, safe='')}@{server.host}:{server.port}/0?namespace={namespace}"
    )


def test_a_user_with_the_commands_and_keys_of_the_namespace_can_do_everything(
    own_server: RedisServer,
) -> None:
    own_server.ask("ACL SETUSER", USER, "on", f">{USER_PASSWORD}", "~{jobcontract:*", *COMMANDS)
    driver = open_store(user_url(own_server))
    made = records(4)
    driver.register(made)
    leases = leases_of(driver.claim([QUEUE, "other"], 3, HOUR))
    driver.extend(leases, HOUR)
    driver.complete(leases[:1])
    driver.cancel([made[3].id])
    driver.requeue([made[3].id])
    driver.rescue(10)
    driver.pause("other")
    driver.resume("other")
    assert driver.wait([QUEUE], HOUR) is True
    assert counts(driver) == {"ready": 1, "running": 2, "done": 1}
    driver.close()


def test_what_a_user_may_not_read_is_said(own_server: RedisServer) -> None:
    own_server.ask("ACL SETUSER", USER, "on", f">{USER_PASSWORD}", "~{jobcontract:*", *COMMANDS)
    driver = open_store(user_url(own_server))
    (note,) = (each for each in driver.capabilities.notes if "may not read" in each)
    assert "appendfsync" in note
    assert "maxmemory-policy" in note
    assert "+config|get" in note
    assert driver.capabilities.durability is Durability.MEMORY
    driver.close()


def test_info_alone_tells_all_but_appendfsync(own_server: RedisServer) -> None:
    own_server.ask("ACL SETUSER", USER, "on", f">{USER_PASSWORD}", "~{jobcontract:*", *COMMANDS, "+info")
    driver = open_store(user_url(own_server))
    (note,) = (each for each in driver.capabilities.notes if "may not read" in each)
    assert note.startswith("this user may not read appendfsync:")
    assert driver.capabilities.durability is Durability.WINDOW
    driver.close()


def test_a_user_is_kept_inside_the_namespace(own_server: RedisServer) -> None:
    own_server.ask("ACL SETUSER", USER, "on", f">{USER_PASSWORD}", "~{jobcontract:*", *COMMANDS)
    driver = connect(user_url(own_server, "other"))
    with pytest.raises(StoreError, match="does not permit") as refused:
        driver.install()
    assert USER_PASSWORD not in str(refused.value)
    driver.close()


@pytest.mark.parametrize(
    "credentials",
    ["", ":wrong@", "nobody:wrong@", f"{USER}@"],
    ids=["none", "password", "user", "no password"],
)
def test_a_wrong_password_is_one_clear_sentence(own_server: RedisServer, credentials: str) -> None:
    driver = connect(f"redis://{credentials}{own_server.host}:{own_server.port}/0")
    with pytest.raises(StoreError, match="user name or password") as refused:
        driver.stats()
    assert refused.value.__cause__ is None
    assert "wrong" not in str(refused.value)
    assert DEFAULT_PASSWORD not in str(refused.value)
    driver.close()


# -- The namespace ---------------------------------------------------------------------------------------


def test_a_missing_namespace_names_the_command_that_makes_it(
    redis_server: RedisServer, namespace: str
) -> None:
    driver = connect(redis_server.url(), namespace=namespace)
    for call in (driver.stats, lambda: driver.register(records(1)), lambda: driver.claim([QUEUE], 1, HOUR)):
        with pytest.raises(StoreError, match=f"no namespace '{namespace}' yet; run `jobctl init`"):
            call()
    assert driver.install(dry_run=True) != []
    with pytest.raises(StoreError, match="jobctl init"):
        driver.stats()  # a dry run makes nothing
    assert len(driver.install()) == 1
    assert driver.stats() == []
    assert driver.install() == []
    driver.close()


def test_a_newer_namespace_is_refused(redis_server: RedisServer, namespace: str) -> None:
    redis_server.ask("HSET", f"{{{namespace}:}}:schema", "version", 2)
    driver = connect(redis_server.url(), namespace=namespace)
    with pytest.raises(StoreError, match="schema 2, and this jobcontract needs 1; upgrade jobcontract"):
        driver.register(records(1))
    driver.close()


def test_two_namespaces_in_one_database_know_nothing_of_each_other(
    redis_server: RedisServer, store: RedisDriver, namespace: str
) -> None:
    other = open_store(redis_server.url(), namespace=f"{namespace}2")
    (made,) = records(1, idempotency_key="a")
    store.register([made])
    assert other.register([made])[0].created
    assert counts(other) == {"ready": 1}
    store.claim([QUEUE], 1, HOUR)
    assert counts(other) == {"ready": 1}
    other.close()


def test_a_database_of_its_own_is_another_store(own_server: RedisServer) -> None:
    one, two = open_store(own_server.url(1)), open_store(own_server.url(2))
    one.register(records(1))
    assert counts(two) == {}
    one.close()
    two.close()


def test_every_key_lies_below_the_namespace_and_never_expires(
    own_server: RedisServer, redis_programs: Programs
) -> None:
    driver = open_store(own_server.url(), namespace="some.name-space_1")
    made = records(3, idempotency_key=None)
    driver.register([made[0]._replace(idempotency_key="{a}"), *made[1:]])
    driver.complete(leases_of(driver.claim([QUEUE], 1, HOUR)))
    driver.cancel([made[2].id])
    driver.pause("other")
    with own_server.client() as client:
        keys = cast("list[bytes]", cast(Any, client).keys())
        assert len(keys) > 8
        assert all(key.startswith(b"{some.name-space_1:") for key in keys)
        assert {client.ttl(key) for key in keys} == {-1}
    driver.close()


def test_the_location_names_what_the_url_leaves_out() -> None:
    driver = connect("redis://:secret@/", namespace="app")
    assert driver.location == "Redis at localhost:6379, database 0, namespace 'app'"
