"""Who counts as a running server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rowlock.cli.server_json import is_alive, is_dying, running_server
from rowlock.kubelet.shim.fact_files import ticks
from rowlock.server_files import process_identity

proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to know one process from another")


def identity(pid: int) -> dict[str, object]:
    """What a server writes of itself into server.json."""
    return {"pid": pid, "startTicks": ticks(pid), "bootId": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}


@proc
def test_only_a_living_server_is_alive() -> None:
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server_json = identity(server.pid)
    assert server.stdin
    assert is_alive(server_json)
    server.stdin.close()
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # it has ended; nobody has buried it
    assert not is_alive(server_json), "a zombie is no server"
    server.wait()
    assert not is_alive(server_json)


@proc
def test_a_number_that_another_program_got_is_no_server() -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        server_json = identity(other.pid)
        assert is_alive(server_json)
        assert not is_alive({**server_json, "startTicks": ticks(other.pid) - 1}), "it was started at another moment"
        assert not is_alive({**server_json, "bootId": "another"}), "the machine was started anew"
        assert is_alive({**server_json, "started": 0.0}), "no clock counts: it may have been set"
        assert is_alive({"pid": other.pid}), "an older rowlock wrote the pid alone"
    finally:
        other.kill()
        other.wait()


@pytest.mark.parametrize(
    ("state", "flags", "pending", "is_over"),
    [
        (b"S", 0x400000, ("0000000000000000", "0000000000000000"), False),
        (b"R", 0x400000, ("0000000000000100", "0000000000000000"), True),  # kill -9, and it has had no CPU since
        (b"D", 0x400000, ("0000000000000000", "0000000000004100"), True),  # … and it waits for the disk
        (b"D", 0x400000, ("0000000000000000", "0000000000004000"), False),  # SIGTERM: it may live for long
        (b"D", 0x40040C, ("0000000000000000", "0000000000000000"), True),  # it exits
        (b"Z", 0x40040C, ("0000000000000000", "0000000000000000"), True),
    ],
)
def test_a_server_that_was_killed_and_is_not_gone_yet_is_dying(
    state: bytes, flags: int, pending: tuple[str, str], is_over: bool
) -> None:
    """`kill -9` and `rowlock up` at once said that it runs already; the next request was reset."""
    stat = [state, b"1", b"1", b"1", b"0", b"-1", b"%d" % flags, b"0"]
    status = f"Name:\tpython\nSigPnd:\t{pending[0]}\nShdPnd:\t{pending[1]}\nSigBlk:\t0000000000000100\n"
    assert is_dying(stat, status) is is_over


def test_a_copied_directory_does_not_lead_to_the_originals_server(tmp_path: Path) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir(mode=0o700)
    server_json = {"url": "https://127.0.0.1:1", "pid": os.getpid(), **process_identity(original)}
    (original / "server.json").write_text(json.dumps(server_json))
    shutil.copytree(original, copy)
    assert running_server(str(original)) == server_json
    assert running_server(str(copy)) is None
    original.rename(tmp_path / "moved")
    assert running_server(str(tmp_path / "moved")) == server_json, "a directory that was moved is the same one"
