"""Encrypted connections: the certificate and the name in it are verified, and nothing goes in plain text."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from urllib.parse import quote

import pytest
from jobcontract_redis import RedisDriver

from jobcontract.errors import StoreError
from tests.redis.stores import HOUR, NOTHING, QUEUE, connect, leases_of, open_store, records
from tests.servers.authority import Authority
from tests.servers.binaries import Programs
from tests.servers.process import free_port
from tests.servers.redis import RedisServer


class EncryptedServer(RedisServer):
    """A server that also listens with TLS."""

    def __init__(self, programs: Programs, authority: Authority, name: str, *, clients: str = "no") -> None:
        certificate, key = authority.sign(name)
        self.encrypted_port = free_port()
        super().__init__(
            programs=programs,
            settings={
                "tls-port": str(self.encrypted_port),
                "tls-cert-file": str(certificate),
                "tls-key-file": str(key),
                "tls-ca-cert-file": str(authority.certificate),
                "tls-auth-clients": clients,
            },
        )

    @property
    def encrypted_url(self) -> str:
        return f"rediss://:{quote(self.password, safe='')}@{self.host}:{self.encrypted_port}/0"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path).create()


@pytest.fixture
def server(redis_programs: Programs, authority: Authority) -> Generator[EncryptedServer]:
    with EncryptedServer(redis_programs, authority, "IP:127.0.0.1") as server:
        yield server


def run_a_job(store: RedisDriver) -> None:
    store.register(records(3))
    assert store.wait([QUEUE], NOTHING) is True
    assert all(verdict.applied for verdict in store.complete(leases_of(store.claim([QUEUE], 3, HOUR))))
    assert store.wait([QUEUE], NOTHING) is False


def test_jobs_run_over_tls(server: EncryptedServer, authority: Authority) -> None:
    store = open_store(server.encrypted_url, tls_ca=str(authority.certificate))
    run_a_job(store)
    store.close()


def test_a_certificate_of_nobody_we_know_is_refused(server: EncryptedServer) -> None:
    store = connect(server.encrypted_url)
    with pytest.raises(StoreError, match=r"certificate of .* can't be verified.*tls_ca") as refused:
        store.install()
    assert server.password not in str(refused.value)
    assert refused.value.__cause__ is None
    store.close()


def test_a_certificate_for_another_host_is_refused(redis_programs: Programs, authority: Authority) -> None:
    with EncryptedServer(redis_programs, authority, "DNS:elsewhere.example") as server:
        store = connect(server.encrypted_url, tls_ca=str(authority.certificate))
        with pytest.raises(StoreError, match=r"can't be verified \(IP address mismatch"):
            store.install()
        store.close()


def test_a_server_that_asks_for_a_certificate_gets_one(
    redis_programs: Programs, authority: Authority
) -> None:
    certificate, key = authority.sign("DNS:client")
    with EncryptedServer(redis_programs, authority, "IP:127.0.0.1", clients="yes") as server:
        store = open_store(
            server.encrypted_url,
            tls_ca=str(authority.certificate),
            tls_cert=str(certificate),
            tls_key=str(key),
        )
        run_a_job(store)
        store.close()
        without = connect(server.encrypted_url, tls_ca=str(authority.certificate))
        with pytest.raises(StoreError):
            without.install()
        without.close()


def test_a_server_that_does_not_encrypt_is_not_spoken_to(redis_server: RedisServer) -> None:
    store = connect(redis_server.url().replace("redis://", "rediss://"), timeout="1s")
    with pytest.raises(StoreError):
        store.install()
    store.close()
