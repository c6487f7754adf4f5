"""basic.publish as bytes.

pika spends most of a bulk registration on encoding: three frames and three sends for each message. Here a
message is one piece, of which all but the body and the names is the same each time, and many go in one send.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import pika.data

_METHOD, _HEADER, _BODY = 1, 2, 3
_FRAME = struct.Struct(">BHI")  # type, channel, size of the payload
_END = b"\xce"
_BASIC_PUBLISH = struct.pack(">HHH", 60, 40, 0)  # class, method, an unused field
_MANDATORY = b"\x01"
_CONTENT = struct.Struct(">HHQH")  # class, an unused field, size of the body, which properties follow
_BASIC = 60

# The properties come in the order of their bits.
_HAS_CONTENT_TYPE, _HAS_HEADERS, _HAS_DELIVERY_MODE = 1 << 15, 1 << 13, 1 << 12
_HAS_MESSAGE_ID, _HAS_TYPE = 1 << 7, 1 << 5
_ALWAYS = _HAS_CONTENT_TYPE | _HAS_DELIVERY_MODE | _HAS_MESSAGE_ID | _HAS_TYPE
_CONTENT_TYPE = b"\x10application/json"
_PERSISTENT = b"\x02"

_MOST_ROUTES = 1000

Headers = Mapping[str, str | int]


class Properties(NamedTuple):
    """What travels beside a body."""

    message_id: str
    type: str
    headers: Headers = {}  # noqa: RUF012  # a mapping that nobody changes


class PublishEncoder:
    """Encodes for one channel. `frame_max` is what was agreed on with the server, in bytes."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._body_max = frame_max - _FRAME.size - len(_END)
        self._methods: dict[tuple[str, str], bytes] = {}

    def encode(self, exchange: str, key: str, body: bytes, properties: Properties) -> bytes:
        """A persistent, mandatory message. Raises `ValueError` for a name of more than 255 bytes."""
        method = self._methods.get((exchange, key))
        if method is None:
            method = self._method(exchange, key)
        flags, table = _ALWAYS, b""
        if properties.headers:
            flags, table = flags | _HAS_HEADERS, _table(properties.headers)
        payload = (
            _CONTENT.pack(_BASIC, 0, len(body), flags)
            + _CONTENT_TYPE
            + table
            + _PERSISTENT
            + _short(properties.message_id)
            + _short(properties.type)
        )
        header = _FRAME.pack(_HEADER, self._channel, len(payload))
        if 0 < len(body) <= self._body_max:
            content = _FRAME.pack(_BODY, self._channel, len(body))
            return b"".join((method, header, payload, _END, content, body, _END))
        return b"".join((method, header, payload, _END, *self._pieces(body)))

    def _method(self, exchange: str, key: str) -> bytes:
        payload = _BASIC_PUBLISH + _short(exchange) + _short(key) + _MANDATORY
        frame = _FRAME.pack(_METHOD, self._channel, len(payload)) + payload + _END
        if len(self._methods) >= _MOST_ROUTES:
            self._methods.clear()
        self._methods[exchange, key] = frame
        return frame

    def _pieces(self, body: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        for start in range(0, len(body), self._body_max):
            piece = body[start : start + self._body_max]
            pieces += (_FRAME.pack(_BODY, self._channel, len(piece)), piece, _END)
        return pieces


def _short(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 255:
        raise ValueError(f"AMQP has no names of more than 255 bytes: {text[:40]!r}...")
    return bytes((len(encoded),)) + encoded


def _table(headers: Headers) -> bytes:
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, dict(headers))
    return b"".join(pieces)
