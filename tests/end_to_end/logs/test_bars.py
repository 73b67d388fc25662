"""A bar that only writes carriage returns reaches followers in pipes while its program runs."""

from __future__ import annotations

import subprocess
import sys

from tests.end_to_end.cluster import Cluster

BAR = "import time\nfor n in range(10**6): print(f'\\r{n} of many', end='', flush=True); time.sleep(0.1)"
IN_PYTHON = """
from rowlock import Client
for line in Client().job("bar").logs(follow=True, rank={rank}):
    print(line.text, flush=True)
"""


def test_followers_see_a_bar_that_ends_no_line(cluster: Cluster) -> None:
    cluster.up()
    cluster.run("rowlock", "run", "-d", "--name", "bar", "--", sys.executable, "-c", BAR)
    commands = (
        ("rowlock", "logs", "-f", "bar"),
        ("rowlock", "logs", "-f", "bar", "--rank", "0"),
        ("rowlock", "logs", "-f", "bar", "--pod", "master-0"),
        ("runai", "logs", "-f", "bar"),
        (sys.executable, "-c", IN_PYTHON.format(rank=None)),
        (sys.executable, "-c", IN_PYTHON.format(rank=0)),
    )
    for line in commands:
        with subprocess.Popen(line, env=cluster.env, stdout=subprocess.PIPE) as follower:
            try:
                assert follower.stdout is not None
                seen = b""
                while b"of many" not in seen:  # pytest's own limit ends it where nothing comes
                    piece = follower.stdout.read1(4096)  # type: ignore[attr-defined] # a buffered pipe
                    assert piece, line
                    seen += piece
            finally:
                follower.kill()
