"""What arrives is what pika would have made of it, in whatever pieces it arrives."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pika
import pika.frame
import pika.spec
from hypothesis import given
from hypothesis import strategies as st
from jobcontract_rabbitmq.deliveries import Deliveries, Seen

from jobcontract import Backend, Job
from tests.rabbitmq.stores import claim_all, until
from tests.servers.rabbitmq import RabbitServer

names = st.text(max_size=20)
optional = st.none() | names
properties = st.builds(
    pika.BasicProperties,
    content_type=optional,
    content_encoding=optional,
    headers=st.none()
    | st.dictionaries(st.text(min_size=1, max_size=10), st.integers(0, 2**42) | names, max_size=4),
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=optional,
    reply_to=optional,
    expiration=optional,
    message_id=optional,
    timestamp=st.none() | st.integers(0, 2**42),
    type=optional,
)
Delivered = tuple[int, Mapping[str, object], str | None, bytes]


class Consumer:
    """The consumer "ours" of a channel."""

    def __init__(self, channel: int = 1) -> None:
        self.delivered: list[Delivered] = []
        self.deliveries = Deliveries()
        self.deliveries.expect(channel, "ours", self.take)

    def take(self, tag: int, headers: Mapping[str, object], message_id: str | None, body: bytes) -> None:
        """A delivery."""
        self.delivered.append((tag, headers, message_id, body))


def encoded(
    channel: int, consumer: str, tag: int, content: pika.BasicProperties, body: bytes, frame_max: int
) -> bytes:
    """A delivery as pika would write it, if it ever did."""
    deliver = pika.spec.Basic.Deliver(consumer, tag, False, "exchange", "key")
    pieces = [body[start : start + frame_max] for start in range(0, len(body), frame_max)]
    frames = [
        pika.frame.Method(channel, deliver),
        pika.frame.Header(channel, len(body), content),
        *(pika.frame.Body(channel, piece) for piece in pieces),
    ]
    return b"".join(frame.marshal() for frame in frames)


@given(
    channel=st.integers(1, 65535),
    tag=st.integers(1, 2**63),
    content=properties,
    body=st.binary(max_size=200),
    frame_max=st.integers(1, 100),
    before=st.binary(max_size=10),
)
def test_a_delivery_is_read_as_it_was_written(
    channel: int, tag: int, content: pika.BasicProperties, body: bytes, frame_max: int, before: bytes
) -> None:
    consumer = Consumer(channel)
    deliveries = consumer.deliveries
    data = before + encoded(channel, "ours", tag, content, body, frame_max)
    for length in range(len(before), len(data)):
        if length > len(before):
            assert deliveries.take(data[:length], len(before)) is Seen.PART
    assert deliveries.take(data, len(before)) == len(data)
    assert consumer.delivered == [(tag, content.headers or {}, content.message_id, body)]


@given(properties, st.binary(max_size=50))
def test_what_is_not_for_us_is_left_alone(content: pika.BasicProperties, body: bytes) -> None:
    deliveries = Consumer().deliveries
    assert deliveries.take(encoded(1, "other", 7, content, body, 4096), 0) is Seen.OTHER
    assert deliveries.take(encoded(2, "ours", 7, content, body, 4096), 0) is Seen.OTHER
    deliveries.forget(1, "ours")
    assert deliveries.take(encoded(1, "ours", 7, content, body, 4096), 0) is Seen.OTHER


def test_other_frames_are_others() -> None:
    deliveries = Deliveries()
    for frame in (
        pika.frame.Heartbeat(),
        pika.frame.Method(1, pika.spec.Basic.QosOk()),
        pika.frame.Method(0, pika.spec.Connection.Blocked("low on memory")),
        pika.frame.Body(1, b"of a message that was asked for"),
    ):
        assert deliveries.take(frame.marshal(), 0) is Seen.OTHER


def test_frames_of_another_channel_in_between_are_for_pika_to_sort_out() -> None:
    deliveries = Consumer().deliveries
    deliver = pika.frame.Method(1, pika.spec.Basic.Deliver("ours", 7, False, "", ""))
    other = pika.frame.Method(2, pika.spec.Basic.Ack(1))
    header = pika.frame.Header(1, 4, pika.BasicProperties())
    assert deliveries.take(deliver.marshal() + other.marshal() + header.marshal(), 0) is Seen.OTHER
    assert deliveries.take(deliver.marshal() + header.marshal() + other.marshal(), 0) is Seen.OTHER


def test_headers_that_can_t_be_read_are_none_and_the_rest_is() -> None:
    consumer = Consumer()
    deliveries = consumer.deliveries
    content = pika.BasicProperties(headers={"name": 1}, message_id="the message")
    # Of a type that pika does not know.
    readable = b"\x04name" + b"I" + struct.pack(">i", 1)
    strange = b"\x04name" + b"?" + struct.pack(">i", 1)
    data = encoded(1, "ours", 7, content, b"body", 4096).replace(readable, strange)
    assert deliveries.take(data, 0) == len(data)
    assert consumer.delivered == [(7, {}, "the message", b"body")]


def test_large_messages_come_whole(store: Backend) -> None:
    """In several frames, and in many more pieces."""
    texts = ["x" * size for size in (1, 100_000, 131_064, 300_000, 7)]
    made = [Job(kind="work", input_ref={"text": text}) for text in texts]
    driver = store.driver
    driver.register([job.to_record() for job in made])
    assert [claim.job.input_ref["text"] for claim in claim_all(store, 5)] == texts


def test_a_stranger_s_message_costs_no_connection(
    rabbitmq_server: RabbitServer, vhost: str, store: Backend
) -> None:
    connection = rabbitmq_server.connect(vhost)
    channel = connection.channel()
    channel.confirm_delivery()
    strange = pika.BasicProperties(
        headers={"attempts": "many", "deep": {"a": [1, {"b": None}]}, "x-delivery-count": -1, "": b"\xff"},
        content_encoding="gzip", priority=9, correlation_id="c", reply_to="r", expiration="100000",
        message_id="m" * 255, timestamp=1, type="t", app_id="a",
    )  # fmt: skip
    channel.basic_publish("jobcontract.v1.ready", "default:0", b"", strange, mandatory=True)
    connection.close()
    store.register(Job(kind="good"))
    good = until(lambda: store.claim(limit=10), "the good job is never claimed")
    assert [claim.job.kind for claim in good] == ["good"]
    store.complete(good[0])
    assert len(store.dead_jobs()) == 1
