"""Who follows a log is told when the server goes: by a sentence and the exit code, in every command and in Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from tests.end_to_end.cluster import Cluster

TICKS = "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done"
IN_PYTHON = """
import sys
from rowlock import Client
from rowlock.sdk.client_errors import ServerUnreachable
try:
    for line in Client().job("tick").logs(follow=True):
        print(line.text, flush=True)
except ServerUnreachable as error:
    sys.exit(str(error))
"""
WITH_AN_EVENT_LOOP = """
import asyncio, sys
from rowlock import AsyncClient
from rowlock.sdk.client_errors import ServerUnreachable
async def follow():
    async with AsyncClient() as client:
        async for line in (await client.job("tick")).logs(follow=True, rank=0):
            print(line.text, flush=True)
try:
    asyncio.run(follow())
except ServerUnreachable as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_follower_is_told_that_the_server_has_gone(cluster: Cluster, number: signal.Signals) -> None:
    cluster.up()
    cluster.run("rowlock", "run", "-d", "--name", "tick", "--", "sh", "-c", TICKS)
    cluster.run("rowlock", "wait", "tick", "--for", "running", "--timeout", "200s")
    commands = (
        ("rowlock", "logs", "-f", "tick"),
        ("rowlock", "logs", "-f", "tick", "--rank", "0"),
        ("rowlock", "logs", "-f", "tick", "--fold"),
        ("runai", "logs", "-f", "tick"),
        ("runai", "training", "pytorch", "logs", "tick", "--follow"),
        (sys.executable, "-c", IN_PYTHON),
        (sys.executable, "-c", WITH_AN_EVENT_LOOP),
    )
    followers = [
        subprocess.Popen(line, env=cluster.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in commands
    ]
    try:
        for follower in followers:
            assert follower.stdout is not None and "line" in follower.stdout.readline()
        os.kill(cluster.pid, number)
        for line, follower in zip(commands, followers, strict=True):
            _, said = follower.communicate(timeout=200)
            assert follower.returncode == 1, (line, said)
            assert "server" in said and len(said.strip().splitlines()) == 1, (line, said)
    finally:
        for follower in followers:
            follower.kill()
            follower.communicate()
    cluster.up()
