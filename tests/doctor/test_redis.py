"""Each ailment of a Redis store, provoked for real, is found and named with its remedy."""

from __future__ import annotations

from datetime import timedelta

from jobcontract.conformance.clock import shifted_clock
from tests.doctor.conftest import Doctor
from tests.servers.redis import RedisServer


def test_a_healthy_store_is_silent(doctor: Doctor, redis_url: str) -> None:
    assert doctor("--backend", redis_url) == {}


def test_a_policy_that_evicts_jobs(doctor: Doctor, redis_url: str, redis_own: RedisServer) -> None:
    """Also where the driver refuses to work with such a server."""
    redis_own.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    for url in (redis_url, f"{redis_url}?accept_loss=true"):
        found = doctor("--backend", url)
        assert found.keys() == {"eviction"}
        assert "allkeys-lru" in found["eviction"]
        assert "CONFIG SET maxmemory-policy noeviction" in found["eviction"]


def test_a_server_without_an_append_only_file(doctor: Doctor, redis_url: str, redis_own: RedisServer) -> None:
    redis_own.ask("CONFIG", "SET", "appendonly", "no")
    assert "CONFIG SET appendonly yes" in doctor("--backend", redis_url)["not_durable"]


def test_a_file_that_is_never_synced(doctor: Doctor, redis_url: str, redis_own: RedisServer) -> None:
    redis_own.ask("CONFIG", "SET", "appendfsync", "no")
    assert "CONFIG SET appendfsync always" in doctor("--backend", redis_url)["not_durable"]


def test_too_few_connections(doctor: Doctor, redis_url: str, redis_own: RedisServer) -> None:
    redis_own.ask("CONFIG", "SET", "maxclients", "100")
    assert doctor("--backend", redis_url) == {}
    assert "maxclients leaves " in doctor("--backend", redis_url, "--processes", "10")["connections"]


def test_a_memory_that_is_nearly_full(doctor: Doctor, redis_url: str, redis_own: RedisServer) -> None:
    used = redis_own.information("memory")["used_memory"]
    redis_own.ask("CONFIG", "SET", "maxmemory", used + 1000)
    assert "raise maxmemory" in doctor("--backend", redis_url)["memory"]


def test_replicas_that_are_waited_for_and_are_not_there(doctor: Doctor, redis_url: str) -> None:
    assert "lower wait_replicas" in doctor("--backend", f"{redis_url}?wait_replicas=1")["replicas"]


def test_settings_that_may_not_be_read(doctor: Doctor, redis_url: str, redis_own: RedisServer) -> None:
    redis_own.ask("ACL", "SETUSER", "blind", "on", ">blind", "~*", "+@all", "-config|get")
    url = redis_url.replace("redis://:", "redis://blind:", 1)
    url = f"redis://blind:blind@{url.partition('@')[2]}"
    assert "+config|get" in doctor("--backend", url)["unseen"]


def test_a_clock_that_is_30_seconds_off(doctor: Doctor, redis_url: str) -> None:
    with shifted_clock(timedelta(seconds=-30), ("jobcontract",)):
        found = doctor("--backend", redis_url)
    assert "30s ahead" in found["clock"]
