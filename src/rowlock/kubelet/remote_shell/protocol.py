"""The protocol of client and server over one TCP connection: a greeting, a proof, then frames. Standard library only.

    server: `ROWLOCK-SHELL-1 NONCE\n`                          NONCE: hexadecimal, another one for each connection
    client: `{"proof": HEX, "command": TEXT}\n`                HEX: HMAC-SHA256 over nonce and command, by the file of the job's private key
    both:   frames: a channel (1 byte), a length (4 bytes, big endian), as many bytes

Channels: 0 the program's input, 1 and 2 its output, 3 its exit code in decimal; an empty frame ends an input. A client
with the key may run commands, as with ssh; nothing is encrypted, since the pods' network does not leave the machine.
"""

import hashlib
import hmac
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator

GREETING = b"ROWLOCK-SHELL-1 "
STDIN, STDOUT, STDERR, EXIT = range(4)
PORTS = (2222, 22)
"""Default ports of the server: Trainer's images listen on the first one."""
MAX_LINE = 1 << 20
"""Bytes of a greeting or a request; mpirun's longest commands have some thousand."""
MAX_FRAME = 1 << 20
_HEAD = struct.Struct(">BI")
_PIECE = 1 << 16


class BrokenTalk(Exception):
    """The peer does not speak the protocol, or is gone."""


def prove(key: bytes, nonce: str, command: str) -> str:
    """The proof that the sender has the key and requests this command on this connection."""
    return hmac.new(key, f"{nonce}\n{command}".encode(errors="surrogateescape"), hashlib.sha256).hexdigest()


def is_proven(key: bytes, nonce: str, command: str, proof: str) -> bool:
    return hmac.compare_digest(prove(key, nonce, command).encode(), proof.encode(errors="replace"))


def receive_line(connection: socket.socket) -> bytes:
    """Reads the first line byte by byte, so that nothing behind it is consumed. Raises BrokenTalk."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = connection.recv(1)
        if not piece or len(line) >= MAX_LINE:
            raise BrokenTalk("the connection ended before a line did" if not piece else "the line is too long")
        line += piece
    return bytes(line[:-1])


def read_request(line: bytes) -> tuple[str, str]:
    """Proof and command of a client's line. Raises BrokenTalk."""
    try:
        request = json.loads(line)
        return str(request["proof"]), str(request["command"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BrokenTalk("this is no request of a rowlock shell") from None


def write_request(key: bytes, nonce: str, command: str) -> bytes:
    return json.dumps({"proof": prove(key, nonce, command), "command": command}).encode() + b"\n"


def receive_frames(connection: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yields frames until the peer ends. Raises BrokenTalk within a frame, OSError of the connection."""
    while head := _receive(connection, _HEAD.size, may_end=True):
        channel, length = _HEAD.unpack(head)
        if length > MAX_FRAME:
            raise BrokenTalk(f"a frame of {length} bytes; {MAX_FRAME} are the most")
        yield channel, _receive(connection, length) if length else b""


def _receive(connection: socket.socket, length: int, *, may_end: bool = False) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(min(length - len(data), _PIECE))
        if not piece:
            if may_end and not data:
                return b""
            raise BrokenTalk("the connection ended in the middle of a frame")
        data += piece
    return bytes(data)


class FrameSender:
    """Sends frames of several threads over one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, channel: int, data: bytes) -> None:
        """Sends one frame. Raises OSError when the peer is gone."""
        with self._lock:
            self._connection.sendall(_HEAD.pack(channel, len(data)) + data)

    def copy_from(self, channel: int, source: int) -> None:
        """Sends everything that a file descriptor yields, and its end; returns early when the peer is gone."""
        try:
            while piece := os.read(source, _PIECE):
                self.send(channel, piece)
            self.send(channel, b"")
        except OSError:
            return  # the source or the connection has ended; the main loop of either side tells which
