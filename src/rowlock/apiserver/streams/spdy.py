"""SPDY/3.1 frames, as much as port-forward needs: streams in one connection, opened by the client. Bytes in, events out.

kubectl speaks it inside a websocket (`SPDY/3.1+portforward.k8s.io`). The layout is that of the SPDY draft 3.1; header
blocks are compressed with one zlib context per direction, begun with the draft's dictionary. No flow control: client-go
has none. Nothing here does any I/O.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_FRAME_BYTES = 4 << 20
"""Bytes in one frame that are accepted."""
_MAX_HEADER_BYTES = 64 << 10
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow"
    " authorization cache-control connection content-base content-encoding content-language content-length"
    " content-location content-md5 content-range content-type date etag expect expires from host if-match"
    " if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma"
    " proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade"
    " user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie"
    " keep-alive origin"
)
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative"
    " Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500"
    " Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec"
    " 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset="
    "iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(struct.pack(">I", len(w)) + w.replace("_", " ").encode() for w in _WORDS.split()) + _REST.encode()
"""What both sides' compression begins with: known names with their lengths, then known values."""


class SpdyError(Exception):
    """What came is not SPDY/3.1."""


@dataclass(frozen=True, slots=True)
class SynStreamFrame:
    """The client opened a stream."""

    stream: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DataFrame:
    """Bytes on a stream; `last` when no more come."""

    stream: int
    data: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class RstStreamFrame:
    """The client wants nothing more of a stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class PingFrame:
    """To be answered with the same number."""

    number: int


@dataclass(frozen=True, slots=True)
class GoAwayFrame:
    """The client leaves."""


Frame = SynStreamFrame | DataFrame | RstStreamFrame | PingFrame | GoAwayFrame


class Framer:
    """The server's half of a connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._decompressor = zlib.decompressobj(zdict=DICTIONARY)
        self._compressor = zlib.compressobj(zdict=DICTIONARY)

    def parse_frames(self, data: bytes) -> Iterator[Frame]:
        """What the bytes say. Raises SpdyError."""
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

    def _parse_frame(self, first: int, flags: int, body: bytes) -> Iterator[Frame]:
        if not first >> 31:
            yield DataFrame(first, body, bool(flags & _FIN))
            return
        if (first >> 16) & 0x7FFF != 3:
            raise SpdyError(f"version {(first >> 16) & 0x7FFF} of SPDY; 3 is spoken here")
        kind = first & 0xFFFF
        number = struct.unpack_from(">I", body)[0] if body else 0
        if kind == _SYN_STREAM:
            yield SynStreamFrame(number & 0x7FFFFFFF, self._parse_headers(body[10:]))
            if flags & _FIN:
                yield DataFrame(number & 0x7FFFFFFF, b"", True)
        elif kind == _RST_STREAM:
            yield RstStreamFrame(number & 0x7FFFFFFF)
        elif kind == _PING:
            yield PingFrame(number)
        elif kind == _GOAWAY:
            yield GoAwayFrame()
        elif kind == 8:
            self._parse_headers(body[4:])  # says nothing to us, but the compression goes on through it

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
        """The stream is accepted."""
        block = self._compressor.compress(struct.pack(">I", 0)) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(_SYN_REPLY, struct.pack(">I", stream) + block)


def encode_data(stream: int, piece: bytes, *, last: bool = False) -> bytes:
    """Bytes on a stream."""
    return struct.pack(">II", stream, (_FIN if last else 0) << 24 | len(piece)) + piece


def encode_rst_stream(stream: int) -> bytes:
    """The stream is refused: a protocol error."""
    return _control_frame(_RST_STREAM, struct.pack(">II", stream, 1))


def encode_ping(number: int) -> bytes:
    """The answer to a ping."""
    return _control_frame(_PING, struct.pack(">I", number))


def _control_frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">II", 0x80030000 | kind, len(body)) + body
