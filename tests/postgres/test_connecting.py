"""URLs, options and TLS: what goes to libpq, and that no password comes back."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import traceback
import warnings
from collections.abc import Generator
from typing import Any

import psycopg
import pytest
from jobcontract_postgres.options import PostgresOptions
from jobcontract_postgres.server import connection_parameters

from jobcontract.config import StoreSettings
from jobcontract.errors import ConfigError, JobContractError, StoreError, StoreUnavailable
from jobcontract.url import StoreURL
from tests.postgres.conftest import OpenStore
from tests.postgres.stores import open_store
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port

CANARY = "c4n4ry.p4ssw0rd"


def parameters(url: str, **options: str) -> dict[str, Any]:
    """What a connection to `url` is made with."""
    settings = StoreSettings("test", StoreURL.parse(url), options)
    return dict(connection_parameters(settings, settings.read_options(PostgresOptions)))


# URLs ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_url_arrive_decoded() -> None:
    found = parameters("postgresql://a%40b:p%2Fw%25@[::1]:5433/my%20db")
    assert (found["user"], found["password"], found["host"], found["port"], found["dbname"]) == (
        "a@b", "p/w%", "::1", "5433", "my db",
    )  # fmt: skip


def test_several_hosts_keep_their_ports() -> None:
    found = parameters("postgresql://a:1,b,c:3/db", target_session_attrs="read-write")
    assert (found["host"], found["port"]) == ("a,b,c", "1,,3")
    assert found["target_session_attrs"] == "read-write"


def test_what_is_not_set_is_left_to_libpq() -> None:
    """So that PGHOST, PGUSER, the service file and the password file count."""
    assert not {"host", "port", "user", "password", "dbname", "sslmode"} & parameters("postgresql://").keys()


def test_a_socket_directory_is_a_parameter(postgres_server: PostgresServer) -> None:
    store = open_store("postgresql:///postgres", host=str(postgres_server.directory))
    # libpq takes the port of a socket from PGPORT or its default, so there is none here; the name says where
    # it looked.
    with pytest.raises(StoreUnavailable, match=f"at {postgres_server.directory}"):
        store.claim()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "127.0.0.2"])
def test_a_server_on_this_machine_may_speak_plain_text(host: str) -> None:
    assert "sslmode" not in parameters(f"postgresql://{host}/db")


@pytest.mark.parametrize("hosts", ["db.example.com", "10.0.0.1", "[2001:db8::1]", "localhost,db.example.com"])
def test_a_server_elsewhere_must_show_that_it_is_the_one(hosts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    found = parameters(f"postgresql://{hosts}/db")
    assert (found["sslmode"], found["sslrootcert"]) == ("verify-full", "system")
    assert parameters(f"postgresql://{hosts}/db", sslmode="require")["sslmode"] == "require"
    own = parameters(f"postgresql://{hosts}/db", sslrootcert="/etc/ca.pem")
    assert (own["sslmode"], own["sslrootcert"]) == ("verify-full", "/etc/ca.pem")


def test_the_environments_sslmode_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    assert "sslmode" not in parameters("postgresql://db.example.com/db")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"schmea": "x"}, "'schmea' is not a setting; did you mean 'schema'?"),
        ({"timeout": "0"}, "'timeout': must be longer than nothing"),
        ({"timeout": "soon"}, "'timeout': 'soon' is not a length of time"),
        ({"pool_size": "0"}, "'pool_size': input should be greater than or equal to 1"),
        ({"sslmode": "yes"}, "'sslmode': input should be 'disable'"),
        ({"listen": "maybe"}, "'listen': input should be 'auto'"),
        ({"host": "/tmp"}, "the URL has a host and 'host' is set beside it"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match="backend 'test'") as raised:
        open_store("postgresql://localhost/db", **options)
    assert sentence in str(raised.value)


# Errors ----------------------------------------------------------------------------------------------------


def mutations(url: str) -> list[str]:
    """`url` with each character left out, doubled, or replaced by one with a meaning in URLs."""
    found = [url[:at] + url[at + 1 :] for at in range(len(url))]
    found += [
        url[:at] + character + url[at:] for at in range(0, len(url), 3) for character in "@:/?#%[]\\ ,&="
    ]
    return found


def test_no_password_is_in_any_error(postgres_server: PostgresServer) -> None:
    """Hundreds of slips in a URL, the password itself intact: nothing that is raised shows it."""
    url = f"postgresql://someone:{CANARY}@127.0.0.1:{postgres_server.port}/nowhere?sslmode=prefer"
    raised = [error for slip in mutations(url) if (error := error_of(slip, postgres_server.port))]
    assert len(raised) > 50
    for error in raised:
        assert CANARY not in everything_about(error)


def error_of(url: str, port: int) -> JobContractError | None:
    """What using `url` raises; None when the password is not intact, or it leads to another server."""
    if CANARY not in url or not url.startswith("postgres"):
        return None
    try:
        parsed = StoreURL.parse(url)
        if parsed.password is None or parsed.password.get_secret_value() != CANARY:
            return None  # it became a part of something else: StoreURL's own tests are about that
        store = open_store(url, timeout="2s")
        assert CANARY not in repr(store.driver) + repr(vars(store.driver.sessions))
        if {(host.name, host.port) for host in parsed.hosts} <= {("127.0.0.1", port)}:
            store.claim()
    except JobContractError as error:
        return error
    return None


def everything_about(error: BaseException) -> str:
    """What a log would show of it."""
    return (
        "".join(traceback.format_exception(error))
        + repr(error)
        + repr(error.__context__)
        + repr(error.__cause__)
    )


def test_a_wrong_password_is_said_at_once_and_not_worth_a_retry(postgres_server: PostgresServer) -> None:
    store = open_store(postgres_server.url(password=CANARY))
    with pytest.raises(StoreError, match="password authentication failed") as raised:
        store.claim()
    assert not isinstance(raised.value, StoreUnavailable)
    assert CANARY not in everything_about(raised.value)


def test_a_database_that_does_not_exist_is_said(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreError, match='database "nowhere" does not exist') as raised:
        open_store(postgres_server.url("nowhere")).claim()
    assert not isinstance(raised.value, StoreUnavailable)


def test_a_server_without_tls_is_refused_where_it_is_asked_for(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreError, match=r"does not support SSL.*; sslmode says how much TLS"):
        open_store(postgres_server.url(), sslmode="verify-full").claim()


@pytest.mark.parametrize("host", ["a" * 70, "a..b"])
def test_a_name_that_no_host_can_have_is_said(host: str) -> None:
    with pytest.raises(StoreError, match=f"can't connect to PostgreSQL at {host}"):
        open_store(f"postgresql://{host}/db").claim()


def test_nobody_at_the_port_is_worth_a_retry() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1.* failed: Connection refused$") as refused:
        open_store(f"postgresql://127.0.0.1:{free_port()}/db").claim()
    assert str(refused.value).count("failed") == 1


@pytest.fixture
def silent_port() -> Generator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_several_silent_hosts_take_no_longer_than_one(silent_port: int) -> None:
    hosts = ",".join([f"127.0.0.1:{silent_port}"] * 4)
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="did not answer within 1 s"):
        open_store(f"postgresql://{hosts}/db", timeout="1s").claim()
    assert time.monotonic() - begun < 3


def test_the_second_host_serves_when_the_first_is_down(postgres_server: PostgresServer) -> None:
    alone = f"127.0.0.1:{postgres_server.port}"
    store = open_store(postgres_server.url().replace(alone, f"127.0.0.1:{free_port()},{alone}"))
    assert store.driver.capabilities.store.startswith("PostgreSQL")
    store.driver.close()


def never(host: str) -> bool:
    return False


def test_plain_text_over_a_network_is_warned_of_once(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test may leave this machine, so this one calls it another."""
    monkeypatch.setattr("jobcontract_postgres.server._is_local", never)
    store = open_store(postgres_server.url(), sslmode="prefer")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with store.driver.sessions.session(checked=False), store.driver.sessions.session(checked=False):
            pass
    store.driver.close()
    assert [str(each.message) for each in caught] == [
        f"the connection to PostgreSQL at 127.0.0.1:{postgres_server.port}, database 'postgres' is not "
        "encrypted, and the server is not on this machine; set sslmode=verify-full"
    ]


def test_a_connection_is_replaced_at_the_end_of_its_life(
    open_another: OpenStore, connection: psycopg.Connection
) -> None:
    store = open_another(max_lifetime="2s", application_name="short lived")
    store.driver.install()

    def backend() -> int:
        with store.driver.sessions.session() as session:
            return session.info.backend_pid

    first = backend()
    assert backend() == first
    time.sleep(2.1)  # the age is what is tested
    assert backend() != first


def test_making_a_driver_contacts_nobody() -> None:
    accepted: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)

        def accept() -> None:
            with contextlib.suppress(TimeoutError):
                accepted.append(listening.accept())

        accepting = threading.Thread(target=accept)
        accepting.start()
        store = open_store(f"postgresql://127.0.0.1:{listening.getsockname()[1]}/db")
        accepting.join()
        store.driver.close()
    assert accepted == []
