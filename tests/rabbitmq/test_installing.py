"""`jobctl init`: the only one who needs the right to configure, and what is said where it did not run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from jobcontract import Backend, Job, StoreError
from tests.rabbitmq.stores import connect, opened
from tests.servers.rabbitmq import RabbitServer

Login = Callable[[str, str, str], str]


@pytest.fixture
def login(rabbitmq_server: RabbitServer, vhost: str) -> Iterator[Login]:
    """Makes a user with these rights (configure, write, read), and gives the URL with which it logs in."""
    users: list[str] = []

    def make(configure: str, write: str, read: str) -> str:
        user = f"user-{len(users)}-{vhost}"
        rabbitmq_server.api("PUT", f"/users/{user}", {"password": "pw", "tags": ""})
        users.append(user)
        rights = {"configure": configure, "write": write, "read": read}
        rabbitmq_server.api("PUT", f"/permissions/{quote(vhost, safe='')}/{user}", rights)
        return rabbitmq_server.url(vhost, user=user, password="pw")

    yield make
    for user in users:
        rabbitmq_server.api("DELETE", f"/users/{user}")


def test_what_would_be_made_is_told_and_not_made(url: str) -> None:
    with connect(url) as backend:
        steps = backend.install(dry_run=True)
        titles = [step.title for step in steps]
        assert "declare direct exchange jobcontract.v1.ready" in titles
        assert "declare quorum queue jobcontract.v1.ready.default.0" in titles
        assert backend.install(dry_run=True) == steps
        assert backend.install() == steps
        assert backend.install() == []


def test_a_queue_that_is_added_later_is_made_alone(url: str) -> None:
    with opened(url):
        pass
    with connect(url, queues="default,mail") as backend:
        assert [step.title for step in backend.install()] == [
            "declare quorum queue jobcontract.v1.dead.mail",
            "declare quorum queue jobcontract.v1.ready.mail.2",
            "declare quorum queue jobcontract.v1.ready.mail.1",
            "declare quorum queue jobcontract.v1.ready.mail.0",
        ]


USES: dict[str, Callable[[Backend], object]] = {
    "register": lambda backend: backend.register(Job(kind="work")),
    "claim": lambda backend: backend.claim(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_without_it_every_verb_names_it(url: str, use: Callable[[Backend], object]) -> None:
    with connect(url) as backend, pytest.raises(StoreError, match=r"not prepared .* run jobctl init"):
        use(backend)


def test_a_queue_that_is_there_with_other_properties_is_named(
    rabbitmq_server: RabbitServer, vhost: str
) -> None:
    connection = rabbitmq_server.connect(vhost)
    connection.channel().queue_declare("jobcontract.v1.ready.default.0", durable=True)
    connection.close()
    with (
        connect(rabbitmq_server.url(vhost)) as backend,
        pytest.raises(StoreError, match=r"ready\.default\.0 is there with other properties"),
    ):
        backend.install()


def test_a_user_who_may_not_configure_is_told_so(login: Login) -> None:
    with connect(login("", ".*", ".*")) as backend, pytest.raises(StoreError, match="may not configure"):
        backend.install()


def test_a_producer_needs_to_write_to_one_exchange(url: str, login: Login) -> None:
    with opened(url) as owner, connect(login("", r"jobcontract\.v1\.ready", "")) as producer:
        assert producer.register(Job(kind="work")).created
        with pytest.raises(StoreError, match="does not let the user"):
            producer.claim()
        assert len(owner.claim()) == 1


def test_a_worker_needs_no_right_to_configure(url: str, login: Login) -> None:
    with opened(url) as owner, connect(login("", r"jobcontract\..*", r"jobcontract\..*")) as worker:
        owner.register_many([Job(kind="work") for _ in range(4)])
        done, again, dead, back = worker.claim(limit=4)
        worker.complete(done)
        assert worker.fail(again, "no").applied
        assert worker.fail(dead, "no", permanent=True).applied
        assert worker.release([back])[0].applied
