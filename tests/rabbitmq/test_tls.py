"""Encrypted connections: the certificate and the name in it are verified, and nothing goes in plain text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobcontract import Backend, Job, StoreError, StoreUnavailable
from tests.rabbitmq.stores import claim_one, connect, opened
from tests.servers.authority import Authority
from tests.servers.binaries import Programs
from tests.servers.process import free_port
from tests.servers.rabbitmq import RabbitServer


class EncryptedServer(RabbitServer):
    """A server that also listens with TLS, and asks for a certificate if `clients` must have one."""

    def __init__(self, programs: Programs, authority: Authority, name: str, *, clients: bool = False) -> None:
        certificate, key = authority.sign(name)
        self.encrypted_port = free_port()
        super().__init__(
            programs=programs,
            settings={
                "listeners.ssl.1": f"127.0.0.1:{self.encrypted_port}",
                "ssl_options.cacertfile": str(authority.certificate),
                "ssl_options.certfile": str(certificate),
                "ssl_options.keyfile": str(key),
                "ssl_options.verify": "verify_peer" if clients else "verify_none",
                "ssl_options.fail_if_no_peer_cert": "true" if clients else "false",
            },
        )

    @property
    def encrypted_url(self) -> str:
        return self.url(port=self.encrypted_port).replace("amqp://", "amqps://")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder: Path = tmp_path_factory.mktemp("certificates")
    return Authority(folder).create()


@pytest.fixture(scope="module")
def server(rabbitmq_programs: Programs, authority: Authority) -> Iterator[EncryptedServer]:
    """One that proves to be 127.0.0.1, to whoever knows the authority."""
    with EncryptedServer(rabbitmq_programs, authority, "IP:127.0.0.1") as server:
        yield server


def run_a_job(store: Backend) -> None:
    store.register(Job(kind="work"))
    store.complete(claim_one(store))
    assert store.claim() == []


def test_jobs_run_over_tls(server: EncryptedServer, authority: Authority) -> None:
    with opened(server.encrypted_url, cacertfile=authority.certificate) as store:
        run_a_job(store)
        assert not any("unencrypted" in note for note in store.capabilities.notes)


def test_a_certificate_of_nobody_we_know_is_refused(server: EncryptedServer) -> None:
    with (
        connect(server.encrypted_url) as store,
        pytest.raises(StoreError, match=r"certificate can't be verified .*set cacertfile") as refused,
    ):
        store.install()
    assert server.password not in str(refused.value)


def test_it_may_be_accepted_all_the_same_and_then_it_is_said(server: EncryptedServer) -> None:
    with opened(server.encrypted_url, verify="verify_none") as store:
        run_a_job(store)
        assert any("not verified" in note for note in store.capabilities.notes)


def test_a_certificate_for_another_host_is_refused(server: EncryptedServer, authority: Authority) -> None:
    with (
        connect(
            server.encrypted_url.replace("127.0.0.1", "localhost"), cacertfile=authority.certificate
        ) as store,
        pytest.raises(StoreError, match=r"verified \(Hostname mismatch"),
    ):
        store.install()


def test_the_name_in_the_certificate_can_be_given(server: EncryptedServer, authority: Authority) -> None:
    url = server.encrypted_url.replace("127.0.0.1", "localhost")
    with opened(url, cacertfile=authority.certificate, server_name_indication="127.0.0.1") as store:
        run_a_job(store)


def test_a_server_that_asks_for_a_certificate_gets_one(
    rabbitmq_programs: Programs, authority: Authority
) -> None:
    certificate, key = authority.sign("DNS:client")
    with EncryptedServer(rabbitmq_programs, authority, "IP:127.0.0.1", clients=True) as server:
        url, trusted = server.encrypted_url, authority.certificate
        with opened(url, cacertfile=trusted, certfile=certificate, keyfile=key) as store:
            run_a_job(store)
        with connect(url, cacertfile=trusted) as store, pytest.raises(StoreUnavailable):
            store.install()


def test_a_server_that_does_not_encrypt_is_not_spoken_to(rabbitmq_server: RabbitServer) -> None:
    url = rabbitmq_server.url().replace("amqp://", "amqps://")
    with connect(url, connect_timeout="1s") as store, pytest.raises(StoreUnavailable):
        store.install()
