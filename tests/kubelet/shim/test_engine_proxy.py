"""What passes between a container and its shim: the engine's own words are told from the program's, however they are cut."""

from __future__ import annotations

import socket

import pytest

from rowlock.kubelet.shim.engine import engine_proxy
from rowlock.kubelet.shim.engine.engine_proxy import StreamPump
from rowlock.kubelet.shim.engine_client import EngineError, Stream

REFUSED = b"[FATAL tini (7)] exec nobody failed: No such file or directory\n"


def frames(*pieces: bytes) -> bytes:
    """As an engine sends what comes on stderr."""
    return b"".join(b"\2\0\0\0" + len(piece).to_bytes(4, "big") + piece for piece in pieces)


def cut(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize(
    ("pieces", "refused", "said"),
    [
        ([REFUSED], "No such file or directory", b""),
        ([REFUSED[:17], REFUSED[17:-1], b"\n"], "No such file or directory", b""),
        (cut(REFUSED, 17), "No such file or directory", b""),
        ([REFUSED[:-1]], "No such file or directory", b""),
        ([b"[FATAL", b" error\n", b"more"], "", b"[FATAL error\nmore"),
        ([b"[FATAL tini ("], "", b"[FATAL tini ("),
        ([b"[", b"E", b"RROR\n"], "", b"[ERROR\n"),
        ([b"first\n", REFUSED], "", b"first\n" + REFUSED),
        ([], "", b""),
    ],
)
def test_a_program_that_is_not_there_is_told_from_one_that_speaks(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], refused: str, said: bytes
) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(engine_proxy, "_write", lambda fd, data: written.append(data))
    theirs, ours = socket.socketpair()
    with theirs, ours:
        theirs.sendall(frames(*pieces))
        theirs.shutdown(socket.SHUT_WR)
        pump = StreamPump(False, stdin=False)
        pump.run(Stream(ours, b""))
    assert (pump.start_error, b"".join(written)) == (refused, said)


@pytest.mark.parametrize(
    ("reason", "mend"),
    [("Permission denied", "`chmod 666 /dev/net/tun`"), ("No such file or directory", "`modprobe tun`")],
)
def test_podman_without_root_and_without_a_tun_device_says_what_to_do(reason: str, mend: str) -> None:
    """As Podman 4.3 answers the start of a container."""
    said = (
        "preparing container ee82d21df854 for attach: /usr/bin/slirp4netns failed: "
        f'"open(\\"/dev/net/tun\\"): {reason}\\nWARNING: Support for seccomp is experimental\\nchild failed(1)\\n"'
    )
    message = engine_proxy.start_error_message(EngineError(500, said), "podman")
    assert f"cannot open /dev/net/tun ({reason})" in message and mend in message and "hostNetwork: true" in message
    assert "WARNING" not in message
    other = "preparing container ee82d21df854 for attach: something else failed"
    assert engine_proxy.start_error_message(EngineError(500, other), "podman") == other
