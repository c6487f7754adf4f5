"""What is sent is what pika would have sent."""

from __future__ import annotations

import pika
import pika.frame
import pika.spec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobcontract_rabbitmq.frames import Properties, PublishEncoder

names = st.text(max_size=60)
headers = st.dictionaries(
    st.sampled_from(["attempts", "refunded", "run_at", "error"]),
    st.integers(0, 2**42) | st.text(max_size=200),
)


@given(
    channel=st.integers(1, 65535),
    exchange=names,
    key=names,
    body=st.binary(max_size=500),
    properties=st.builds(Properties, names, names, headers),
    frame_max=st.integers(16, 200),
)
def test_a_message_is_encoded_as_pika_does(
    channel: int, exchange: str, key: str, body: bytes, properties: Properties, frame_max: int
) -> None:
    ours = PublishEncoder(channel, frame_max).encode(exchange, key, body, properties)
    publish = pika.spec.Basic.Publish(exchange=exchange, routing_key=key, mandatory=True)
    theirs = pika.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        message_id=properties.message_id,
        type=properties.type,
        headers=dict(properties.headers) or None,
    )
    frames = [pika.frame.Method(channel, publish), pika.frame.Header(channel, len(body), theirs)]
    pieces = [body[start : start + frame_max - 8] for start in range(0, len(body), frame_max - 8)]
    bodies = [pika.frame.Body(channel, piece) for piece in pieces]
    assert ours == b"".join(frame.marshal() for frame in [*frames, *bodies])


def test_a_name_that_amqp_has_no_room_for_is_refused() -> None:
    with pytest.raises(ValueError, match="255 bytes"):
        PublishEncoder(1, 4096).encode("", "k" * 256, b"", Properties("id", "kind"))
