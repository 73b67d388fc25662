"""Who counts as a running server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rowlock.cli.client import alive


def test_only_a_living_server_is_alive() -> None:
    server = subprocess.Popen([sys.executable, "-c", "input()", "rowlock.serve"], stdin=subprocess.PIPE)
    assert server.stdin
    assert alive(server.pid)
    server.stdin.close()
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)  # it has ended; nobody has buried it
    if os.path.isdir("/proc/self"):
        assert not alive(server.pid), "a zombie is no server"
    server.wait()
    assert not alive(server.pid)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to know a process from another")
def test_a_number_that_another_program_got_is_no_server() -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        assert not alive(other.pid)
    finally:
        other.kill()
        other.wait()
