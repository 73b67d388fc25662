"""The part of SPDY/3.1 that Kubernetes' clients need: streams in one connection, opened by the client.

kubectl uses it inside a websocket (`SPDY/3.1+portforward.k8s.io`). The layout is that of the SPDY draft 3.1; header
blocks are compressed with one zlib context per direction, initialised with the draft's dictionary. No flow control:
client-go has none.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources

from starlette.types import Receive, Send

MAX_FRAME_BYTES = 4 << 20
"""The largest frame that is accepted, in bytes."""
_MAX_HEADER_BYTES = 64 << 10
DATA, SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY, HEADERS = 0, 1, 2, 3, 6, 7, 8
_FIN = 1
*_WORDS, _REST = resources.files(__package__).joinpath("spdy_dictionary.txt").read_bytes().splitlines()
DICTIONARY = b"".join(struct.pack(">I", len(word)) + word for word in _WORDS) + _REST
"""The initial zlib dictionary of both sides: known words with their lengths, then known values."""


class SpdyError(Exception):
    """The received data is not valid SPDY/3.1."""


@dataclass(frozen=True, slots=True)
class SpdyFrame:
    """A frame from the client; in a PING, `stream` is the number that the answer repeats."""

    kind: int
    stream: int = 0
    data: bytes = b""
    last: bool = False
    """It is the last data on the stream."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of a SYN_STREAM."""


class Framer:
    """Encodes and decodes frames for the server's side of a connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._decompressor = zlib.decompressobj(zdict=DICTIONARY)
        self._compressor = zlib.compressobj(zdict=DICTIONARY)

    def parse_frames(self, data: bytes) -> Iterator[SpdyFrame]:
        """Add received bytes and return the frames that are complete. Raises SpdyError."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            length = second & 0xFFFFFF
            if length > MAX_FRAME_BYTES:
                raise SpdyError(f"a frame of {length} bytes; at most {MAX_FRAME_BYTES} are taken")
            if len(self._buffer) < 8 + length:
                return
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            try:
                yield from self._parse_frame(first, second >> 24, body)
            except (struct.error, zlib.error) as error:
                raise SpdyError(str(error)) from None

    def _parse_frame(self, first: int, flags: int, body: bytes) -> Iterator[SpdyFrame]:
        if not first >> 31:
            yield SpdyFrame(DATA, first, body, bool(flags & _FIN))
            return
        if (first >> 16) & 0x7FFF != 3:
            raise SpdyError(f"version {(first >> 16) & 0x7FFF} of SPDY; 3 is spoken here")
        kind, stream = first & 0xFFFF, struct.unpack_from(">I", body)[0] if body else 0
        if kind == SYN_STREAM:
            yield SpdyFrame(kind, stream & 0x7FFFFFFF, headers=self._parse_headers(body[10:]))
            if flags & _FIN:
                yield SpdyFrame(DATA, stream & 0x7FFFFFFF, last=True)
        elif kind in (RST_STREAM, PING, GOAWAY):
            yield SpdyFrame(kind, stream if kind == PING else stream & 0x7FFFFFFF)
        elif kind == HEADERS:
            self._parse_headers(body[4:])  # ignored, but decompression must process it to stay in sync

    def _parse_headers(self, block: bytes) -> dict[str, str]:
        plain = self._decompressor.decompress(block, _MAX_HEADER_BYTES)
        if self._decompressor.unconsumed_tail:
            raise SpdyError(f"headers of more than {_MAX_HEADER_BYTES} bytes")
        (count,), position, texts = struct.unpack_from(">I", plain), 4, []
        for _ in range(min(count, _MAX_HEADER_BYTES) * 2):
            (size,) = struct.unpack_from(">I", plain, position)
            texts.append(plain[position + 4 : position + 4 + size].decode("latin-1"))
            position += 4 + size
        return dict(zip((name.lower() for name in texts[::2]), texts[1::2], strict=True))

    def encode_syn_reply(self, stream: int) -> bytes:
        block = self._compressor.compress(struct.pack(">I", 0)) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(SYN_REPLY, struct.pack(">I", stream) + block)


def encode_data(stream: int, piece: bytes, *, last: bool = False) -> bytes:
    """A data frame."""
    return struct.pack(">II", stream, (_FIN if last else 0) << 24 | len(piece)) + piece


def encode_rst_stream(stream: int) -> bytes:
    """A frame that refuses a stream with PROTOCOL_ERROR."""
    return _control_frame(RST_STREAM, struct.pack(">II", stream, 1))


def encode_ping(number: int) -> bytes:
    """The answer to a ping."""
    return _control_frame(PING, struct.pack(">I", number))


def _control_frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">II", 0x80030000 | kind, len(body)) + body


class SpdyConnection:
    """SPDY over `receive` and `send` of an ASGI websocket, whose messages are parts of the byte stream."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send, self._framer = receive, send, Framer()

    async def receive(self) -> list[SpdyFrame] | None:
        """The frames of the next message, without pings, which are answered here; None when the client has disconnected. Raises
        SpdyError."""
        message = await self._receive()
        if message["type"] != "websocket.receive":
            return None
        frames = list(self._framer.parse_frames(message.get("bytes") or b""))
        for ping in (frame for frame in frames if frame.kind == PING):
            await self.send(encode_ping(ping.stream))
        return [frame for frame in frames if frame.kind != PING]

    async def send(self, frame: bytes) -> None:
        """Send a frame; waits while the client does not read. Raises OSError when it has disconnected."""
        await self._send({"type": "websocket.send", "bytes": frame})

    async def answer_open(self, stream: int, *, accepted: bool) -> None:
        """Accept or refuse a stream that the client opened."""
        await self.send(self._framer.encode_syn_reply(stream) if accepted else encode_rst_stream(stream))
