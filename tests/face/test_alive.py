"""Who counts as a running server."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rowlock.cli.client import alive

proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to know one process from another")


@proc
def test_only_a_living_server_is_alive() -> None:
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = {"pid": server.pid, "started": time.time()}
    assert server.stdin
    assert alive(found)
    server.stdin.close()
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # it has ended; nobody has buried it
    assert not alive(found), "a zombie is no server"
    server.wait()
    assert not alive(found)


@proc
def test_a_number_that_another_program_got_is_no_server() -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        assert alive({"pid": other.pid, "started": time.time()})
        assert not alive({"pid": other.pid, "started": time.time() - 3600}), "it is younger than the server was"
    finally:
        other.kill()
        other.wait()
