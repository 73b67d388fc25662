"""SPDY/3.1 frames, written here by hand as a client would."""

from __future__ import annotations

import asyncio
import struct
import zlib

import pytest
from starlette.types import Message

from rowlock.apiserver.streams import spdy, spdy_upgrade
from rowlock.apiserver.streams.websockets import ExecOptions


class Client:
    """The client's half: one compression context for everything it sends."""

    def __init__(self) -> None:
        self._pack = zlib.compressobj(zdict=spdy.DICTIONARY)
        self._unpack = zlib.decompressobj(zdict=spdy.DICTIONARY)

    def open(self, stream: int, flags: int = 0, **headers: str) -> bytes:
        plain = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for text in (name, value):
                plain += struct.pack(">I", len(text)) + text.encode()
        block = self._pack.compress(plain) + self._pack.flush(zlib.Z_SYNC_FLUSH)
        return control(1, struct.pack(">IIH", stream, 0, 0) + block, flags)

    def headers(self, reply: bytes) -> tuple[int, bytes]:
        """Stream and plain header block of a SYN_REPLY."""
        return struct.unpack_from(">I", reply, 8)[0], self._unpack.decompress(reply[12:])


def control(kind: int, body: bytes, flags: int = 0, version: int = 3) -> bytes:
    return struct.pack(">II", 0x80000000 | version << 16 | kind, flags << 24 | len(body)) + body


def test_the_dictionary_is_the_drafts() -> None:
    assert (len(spdy.DICTIONARY), zlib.adler32(spdy.DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_streams_open_with_one_compression_and_data_flows() -> None:
    client, server = Client(), spdy.Framer()
    sent = client.open(1, streamtype="error", port="80") + client.open(3, streamtype="data", port="80")
    sent += spdy.encode_data(3, b"hello") + spdy.encode_data(3, b"", last=True) + control(6, struct.pack(">I", 7))
    sent += control(3, struct.pack(">II", 3, 5)) + control(7, struct.pack(">II", 3, 0)) + control(4, b"\0" * 4)
    found = [event for byte in sent for event in server.parse_frames(bytes((byte,)))]  # cut anywhere
    assert found == [
        spdy.SpdyFrame(spdy.SYN_STREAM, 1, headers={"streamtype": "error", "port": "80"}),
        spdy.SpdyFrame(spdy.SYN_STREAM, 3, headers={"streamtype": "data", "port": "80"}),
        spdy.SpdyFrame(spdy.DATA, 3, b"hello"),
        spdy.SpdyFrame(spdy.DATA, 3, last=True),
        spdy.SpdyFrame(spdy.PING, 7),
        spdy.SpdyFrame(spdy.RST_STREAM, 3),
        spdy.SpdyFrame(spdy.GOAWAY, 3),
    ]
    assert client.headers(server.encode_syn_reply(1)) == (1, b"\0\0\0\0")
    assert client.headers(server.encode_syn_reply(3)) == (3, b"\0\0\0\0")


def test_a_stream_may_be_half_closed_from_its_beginning() -> None:
    found = list(spdy.Framer().parse_frames(Client().open(1, flags=1, streamtype="error")))
    assert found == [
        spdy.SpdyFrame(spdy.SYN_STREAM, 1, headers={"streamtype": "error"}),
        spdy.SpdyFrame(spdy.DATA, 1, last=True),
    ]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (control(1, b"\0" * 10 + b"no zlib"), "zlib|invalid|incorrect"),
        (control(6, b"\0\0\0\1", version=2), "version 2"),
        (struct.pack(">II", 1, 0xFFFFFF) + b"x", "a frame of 16777215 bytes"),
        (control(1, b"\0"), "unpack"),
        (Client().open(1, a="x" * 100_000), "headers of more than"),
    ],
)
def test_what_is_not_spdy_is_said(sent: bytes, why: str) -> None:
    with pytest.raises(spdy.SpdyError, match=why):
        list(spdy.Framer().parse_frames(sent))


def test_a_client_that_opens_no_streams_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silence() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("it was waited for")

    async def send(message: Message) -> None:
        """Nobody reads it."""

    async def accept() -> None:
        await spdy_upgrade.SpdyChannels(silence, send, ExecOptions("main", ["true"], stdout=True)).accept()

    monkeypatch.setattr(spdy_upgrade, "STREAM_CREATION_TIMEOUT", 0.01)
    with pytest.raises(TimeoutError):
        asyncio.run(accept())
