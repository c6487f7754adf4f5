"""The proxy does to real sockets what its switches say."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Generator

import pytest

from tests.servers.proxy import Proxy, When, contains

SILENCE = 0.3
"""Seconds without an answer that are taken for none; an answer takes less than a millisecond."""


class Echo(socketserver.ThreadingTCPServer):
    """Answers every line with itself, and keeps what it was sent."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EchoHandler)
        self.lines: list[bytes] = []
        self.ended = threading.Event()


class EchoHandler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Echo)
        with contextlib.suppress(OSError):
            for line in self.rfile:
                self.server.lines.append(line)
                self.wfile.write(line)
        self.server.ended.set()


@pytest.fixture
def echo() -> Generator[Echo]:
    with Echo() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(echo: Echo) -> Generator[Proxy]:
    host, port = echo.socket.getsockname()
    with Proxy((host, port)) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=5)


def ask(client: socket.socket, line: bytes) -> bytes:
    client.sendall(line)
    return receive(client, len(line))


def receive(client: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = client.recv(size - len(received))
        if not piece:
            break
        received += piece
    return received


def assert_silent(client: socket.socket) -> None:
    client.settimeout(SILENCE)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(5)


def test_passes_everything_in_both_directions(proxy: Proxy) -> None:
    sent = b"x" * 3_000_000 + b"\n"
    with connect(proxy) as client:
        threading.Thread(target=client.sendall, args=(sent,)).start()
        assert receive(client, len(sent)) == sent


def test_passes_the_end_of_a_stream_and_still_the_answer(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"last\n")
        client.shutdown(socket.SHUT_WR)
        assert receive(client, 100) == b"last\n"
    proxy.await_connections(0)


def test_speaks_in_the_other_ends_name(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        ask(client, b"a\n")
        proxy.inject(to_client=b"b\n", to_server=b"c\n")
        assert receive(client, 4) == b"b\nc\n"
    assert echo.lines == [b"a\n", b"c\n"]


def test_counts_connections(proxy: Proxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        ask(first, b"a\n")
        ask(second, b"b\n")
        assert (proxy.connections, proxy.accepted) == (2, 2)
    proxy.await_connections(0)
    assert proxy.accepted == 2


def test_reset_all_resets_what_is_open_and_lets_later_connections_pass(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        ask(client, b"before\n")
        proxy.reset_all()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.ended.wait(5)
    with connect(proxy) as later:
        assert ask(later, b"after\n") == b"after\n"


def test_black_hole_is_silent_in_both_directions_and_closes_nothing(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as present:
        ask(present, b"before\n")
        proxy.blackhole()
        present.sendall(b"unheard\n")
        with connect(proxy) as new:
            new.sendall(b"unheard too\n")
            assert_silent(new)
        assert_silent(present)
        assert echo.lines == [b"before\n"]
        assert not echo.ended.is_set()

        proxy.pass_all()
        assert receive(present, 8) == b"unheard\n"


def test_black_hole_swallows_a_reset_too(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        ask(client, b"before\n")
        proxy.blackhole()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    assert not echo.ended.wait(SILENCE)
    proxy.pass_all()
    assert echo.ended.wait(5)


def test_reset_all_ends_what_a_black_hole_holds(proxy: Proxy) -> None:
    with connect(proxy) as client:
        ask(client, b"before\n")
        proxy.blackhole()
        proxy.reset_all()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert proxy.connections == 0


def test_delay_makes_a_round_trip_longer(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.delay(0.2)
        start = time.monotonic()
        ask(client, b"slow\n")
        assert time.monotonic() - start >= 0.2


def test_delay_leaves_the_throughput(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.delay(0.2)
        start = time.monotonic()
        for _ in range(20):
            client.sendall(b"line\n")
            time.sleep(0.001)  # pieces of their own
        receive(client, 20 * 5)
        assert time.monotonic() - start < 20 * 0.2 / 2


def test_limit_of_bytes_per_second(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.limit(100_000)
        start = time.monotonic()
        ask(client, b"x" * 30_000 + b"\n")
        assert time.monotonic() - start >= 0.3


def test_refuses_new_connections_and_keeps_present_ones(proxy: Proxy) -> None:
    with connect(proxy) as present:
        ask(present, b"before\n")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        assert ask(present, b"still\n") == b"still\n"
        proxy.accept()
        with connect(proxy) as new:
            assert ask(new, b"again\n") == b"again\n"


def test_cut_of_the_reply_comes_after_the_server_did_it(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        ask(client, b"BEGIN\n")
        cut = proxy.cut_next_reply(contains(b"COMMIT"))
        assert ask(client, b"INSERT\n") == b"INSERT\n"
        assert not cut.done
        client.sendall(b"COMMIT\n")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        cut.wait()
        assert echo.lines == [b"BEGIN\n", b"INSERT\n", b"COMMIT\n"]
    with connect(proxy) as later:  # once only
        assert ask(later, b"COMMIT\n") == b"COMMIT\n"


def test_cut_sees_a_request_that_comes_in_pieces(proxy: Proxy) -> None:
    with connect(proxy) as client:
        cut = proxy.cut_next_reply(contains(b"COMMIT"))
        client.sendall(b"COM")
        assert_silent(client)  # the first piece has been passed on by now
        client.sendall(b"MIT\n")
        cut.wait()


def test_cut_of_one_reply_in_a_pipeline(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        cut = proxy.cut_next_reply(contains(b"COMMIT"), reply=contains(b"COMMIT"))
        client.sendall(b"INSERT\n")
        assert receive(client, 7) == b"INSERT\n"
        client.sendall(b"COMMIT\n")
        cut.wait()
        assert echo.lines[-1] == b"COMMIT\n"


def test_cut_before_a_request_keeps_it_from_the_server(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        ask(client, b"one\n")
        cut = proxy.cut_next_request(contains(b"two"))
        client.sendall(b"two\n")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        cut.wait()
        assert echo.ended.wait(5)
        assert echo.lines == [b"one\n"]


def test_cut_after_a_request_lets_the_server_read_it(proxy: Proxy, echo: Echo) -> None:
    with connect(proxy) as client:
        ask(client, b"one\n")
        cut = proxy.cut_next_request(contains(b"ack"), when=When.AFTER_REQUEST)
        client.sendall(b"ack\n")
        cut.wait()
        assert echo.ended.wait(5)
        assert echo.lines == [b"one\n", b"ack\n"]


def test_cut_that_finds_no_request_says_so(proxy: Proxy) -> None:
    with pytest.raises(TimeoutError, match="no request"):
        proxy.cut_next_reply().wait(0.01)


def test_pass_all_undoes_every_switch(proxy: Proxy) -> None:
    cut = proxy.cut_next_reply()
    proxy.delay(60)
    proxy.limit(1)
    proxy.blackhole()
    proxy.refuse()
    proxy.pass_all()
    with connect(proxy) as client:
        assert ask(client, b"x" * 1000 + b"\n") == b"x" * 1000 + b"\n"
    assert not cut.done


def test_server_that_is_down_is_a_reset_and_comes_back_on_the_same_port(echo: Echo) -> None:
    down = socket.socket()
    down.bind(("127.0.0.1", 0))  # bound, not listening: refuses
    with down, Proxy(down.getsockname()) as proxy:
        # The reset may come between the kernel's handshake and the return of connect().
        with pytest.raises(ConnectionResetError), connect(proxy) as client:
            client.recv(1)
        proxy.server_address = echo.socket.getsockname()
        with connect(proxy) as client:
            assert ask(client, b"up\n") == b"up\n"


def test_a_predicate_that_raises_ends_the_connection_and_is_told_at_the_end(echo: Echo) -> None:
    def broken(_: bytes) -> bool:
        raise ZeroDivisionError

    proxy = Proxy(echo.socket.getsockname())
    proxy.cut_next_reply(broken)
    with connect(proxy) as client:
        client.sendall(b"x\n")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with pytest.raises(ZeroDivisionError):
        proxy.close()
