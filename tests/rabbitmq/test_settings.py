"""URLs and options: what is understood, what is refused, and what never shows."""

from __future__ import annotations

import pytest

from jobcontract import ConfigError, Job, StoreError, StoreUnavailable, get_backend
from jobcontract.config import Settings
from tests.rabbitmq.stores import connect, opened
from tests.servers.process import free_port
from tests.servers.rabbitmq import RabbitServer

SECRET = "s3cret/canary@%"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("queue=mail", "'queue' is not a setting; did you mean 'queues'"),
        ("queues=Mail", "'queues.0'"),
        ("priority_levels=4", "'priority_levels'"),
        ("heartbeat=500ms", "whole number of seconds"),
        ("namespace=a.b", "'namespace'"),
        ("window=0", "'window'"),
        ("cacertfile=/nowhere.pem", "cacertfile is for amqps:// URLs"),
    ],
)
def test_a_bad_option_is_named_before_anything_is_contacted(query: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_backend(f"amqp://localhost/?{query}", settings=Settings())


def test_a_certificate_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="cacertfile names no file"):
        get_backend("amqps://localhost/?cacertfile=/nowhere.pem", settings=Settings())


@pytest.mark.parametrize("name", ["with/slash", "with space", "%2F", "grüße", "a.b-c_d"])
def test_a_virtual_host_may_have_any_name(rabbitmq_server: RabbitServer, name: str) -> None:
    vhost = rabbitmq_server.create_vhost(name)
    try:
        with opened(rabbitmq_server.url(vhost)) as backend:
            assert backend.register(Job(kind="work")).created
            queue = (
                rabbitmq_server.connect(vhost)
                .channel()
                .queue_declare("jobcontract.v1.ready.default.0", passive=True)
            )
            assert queue.method.message_count == 1
    finally:
        rabbitmq_server.delete_vhost(vhost)


@pytest.mark.parametrize("path", ["", "/"])
def test_no_virtual_host_is_the_servers_own(rabbitmq_server: RabbitServer, path: str) -> None:
    url = rabbitmq_server.url("x").removesuffix("/x") + path
    with connect(url) as backend:
        assert backend.capabilities.store.startswith("RabbitMQ ")


def test_two_namespaces_in_one_virtual_host_never_meet(url: str) -> None:
    with opened(url, namespace="one") as one, opened(url, namespace="two") as two:
        one.register(Job(kind="work"))
        assert two.claim() == []
        assert len(one.claim()) == 1


def test_a_wrong_password_is_no_outage_and_never_shows(rabbitmq_server: RabbitServer, url: str) -> None:
    wrong = rabbitmq_server.url(url.rpartition("/")[2], password=SECRET)
    with (
        connect(wrong) as backend,
        pytest.raises(StoreError, match="refused the user or the password") as raised,
    ):
        backend.register(Job(kind="work"))
    assert not isinstance(raised.value, StoreUnavailable)
    assert_silent_about_secret(raised.value)


def test_a_virtual_host_that_is_not_there_is_named(rabbitmq_server: RabbitServer) -> None:
    with connect(rabbitmq_server.url("not-there")) as backend, pytest.raises(StoreError, match="not-there"):
        backend.register(Job(kind="work"))


def test_nobody_at_the_address_is_an_outage_and_the_password_never_shows() -> None:
    url = f"amqp://user:s3cret%2Fcanary%40%25@127.0.0.1:{free_port()}/"
    with connect(url) as backend, pytest.raises(StoreUnavailable, match="can't be reached") as raised:
        backend.register(Job(kind="work"))
    assert_silent_about_secret(raised.value)


def test_the_next_host_is_asked_when_one_does_not_answer(rabbitmq_server: RabbitServer, vhost: str) -> None:
    url = rabbitmq_server.url(vhost).replace("@", f"@127.0.0.1:{free_port()},")
    with opened(url) as backend:
        assert backend.register(Job(kind="work")).created
        assert len(backend.claim()) == 1


def assert_silent_about_secret(error: BaseException | None) -> None:
    """Neither it nor what caused it shows the password."""
    while error is not None:
        assert "s3cret" not in f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__
