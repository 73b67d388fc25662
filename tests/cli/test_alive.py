"""Who counts as a running server."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rowlock.cli.client import is_alive

proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to know one process from another")


@proc
def test_only_a_living_server_is_alive() -> None:
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = {"pid": server.pid, "started": time.time()}
    assert server.stdin
    assert is_alive(found)
    server.stdin.close()
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # it has ended; nobody has buried it
    assert not is_alive(found), "a zombie is no server"
    server.wait()
    assert not is_alive(found)


@proc
def test_a_number_that_another_program_got_is_no_server() -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        assert is_alive({"pid": other.pid, "started": time.time()})
        assert not is_alive({"pid": other.pid, "started": time.time() - 3600}), "it is younger than the server was"
    finally:
        other.kill()
        other.wait()
