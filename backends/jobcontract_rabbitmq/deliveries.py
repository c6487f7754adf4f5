"""basic.deliver from bytes.

The other half of `frames`: pika makes three objects of frames, two of methods and properties and a dozen
look-ups of a delivery; here it is looked at where it arrives, if it is there in one piece, as RabbitMQ sends
it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import cast

import pika.data

_METHOD, _HEADER, _BODY = 1, 2, 3
_FRAME = struct.Struct(">BHI")  # type, channel, size of the payload
_OVERHEAD = _FRAME.size + 1  # and the octet at its end
_BASIC_DELIVER = struct.pack(">HH", 60, 60)
_TAG = struct.Struct(">Q")
_SIZE = struct.Struct(">I")
_CONTENT = struct.Struct(">HHQH")  # class, an unused field, size of the body, which properties follow

# The properties come in the order of their bits.
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 1 << 15, 1 << 14, 1 << 13
_DELIVERY_MODE, _PRIORITY = 1 << 12, 1 << 11
_CORRELATION_ID, _REPLY_TO, _EXPIRATION, _MESSAGE_ID = 1 << 10, 1 << 9, 1 << 8, 1 << 7

OnDelivery = Callable[[int, Mapping[str, object], str | None, bytes], None]
"""Given the delivery tag, the headers, the message id and the body."""


class Seen(Enum):
    """What was there, when it was no delivery that could be handed over."""

    OTHER = "another frame"
    PART = "the beginning of a delivery"


class Deliveries:
    """Hands over the deliveries of one connection."""

    def __init__(self) -> None:
        self._consumers: dict[tuple[int, bytes], OnDelivery] = {}

    def expect(self, channel: int, consumer_tag: str, on_delivery: OnDelivery) -> None:
        """Hand over what comes for this consumer."""
        self._consumers[channel, consumer_tag.encode()] = on_delivery

    def forget(self, channel: int, consumer_tag: str) -> None:
        """`expect` no more: what comes later is another frame."""
        self._consumers.pop((channel, consumer_tag.encode()), None)

    def take(self, data: bytes, start: int) -> int | Seen:
        """Hand over the delivery that begins at `start` of `data`; where it ends."""
        if len(data) - start < _FRAME.size + len(_BASIC_DELIVER):
            return Seen.PART if data[start] == _METHOD else Seen.OTHER
        kind, channel, size = _FRAME.unpack_from(data, start)
        method = start + _FRAME.size
        if kind != _METHOD or data[method : method + 4] != _BASIC_DELIVER:
            return Seen.OTHER
        header = start + size + _OVERHEAD
        if len(data) < header + _FRAME.size:
            return Seen.PART
        tag_at = method + 5 + data[method + 4]
        on_delivery = self._consumers.get((channel, data[method + 5 : tag_at]))
        if on_delivery is None:
            return Seen.OTHER
        kind, content_channel, size = _FRAME.unpack_from(data, header)
        bodies = header + size + _OVERHEAD
        if kind != _HEADER or content_channel != channel:
            return Seen.OTHER  # frames of another channel are in between: pika sorts them out
        if len(data) < bodies:
            return Seen.PART
        properties = header + _FRAME.size
        _, _, length, flags = _CONTENT.unpack_from(data, properties)
        found = _body(data, bodies, channel, length)
        if isinstance(found, Seen):
            return found
        body, end = found
        headers, message_id = _properties(data, properties + _CONTENT.size, flags)
        on_delivery(_TAG.unpack_from(data, tag_at)[0], headers, message_id, body)
        return end


def _body(data: bytes, start: int, channel: int, length: int) -> tuple[bytes, int] | Seen:
    """A body of `length` bytes, from the frames that begin at `start`, and where they end."""
    pieces: list[bytes] = []
    while length > 0:
        if len(data) < start + _FRAME.size:
            return Seen.PART
        kind, content_channel, size = _FRAME.unpack_from(data, start)
        if kind != _BODY or content_channel != channel:
            return Seen.OTHER
        end = start + size + _OVERHEAD
        if len(data) < end:
            return Seen.PART
        pieces.append(data[start + _FRAME.size : end - 1])
        length -= size
        start = end
    return pieces[0] if len(pieces) == 1 else b"".join(pieces), start


def _properties(data: bytes, at: int, flags: int) -> tuple[Mapping[str, object], str | None]:
    """Headers and message id, and nothing of what lies between them."""
    headers: Mapping[str, object] = {}
    if flags & _CONTENT_TYPE:
        at += 1 + data[at]
    if flags & _CONTENT_ENCODING:
        at += 1 + data[at]
    if flags & _HEADERS:
        headers = _table(data, at)
        at += _SIZE.size + _SIZE.unpack_from(data, at)[0]
    if flags & _DELIVERY_MODE:
        at += 1
    if flags & _PRIORITY:
        at += 1
    for flag in (_CORRELATION_ID, _REPLY_TO, _EXPIRATION):
        if flags & flag:
            at += 1 + data[at]
    if not flags & _MESSAGE_ID:
        return headers, None
    return headers, data[at + 1 : at + 1 + data[at]].decode(errors="replace")


def _table(data: bytes, at: int) -> Mapping[str, object]:
    """Headers; none where pika can't read them: a stranger's message (a 16-bit integer is enough) must not
    cost the connection, and come again on the next one.
    """
    try:
        table, _ = pika.data.decode_table(data, at)
    except Exception:  # it raises whatever comes of reading at the wrong place
        return {}
    return cast("Mapping[str, object]", table)
