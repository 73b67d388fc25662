"""A terminal for a program in a container: what is typed and answered is the same as of a process of this machine, and as with
`docker run -it`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.containers.conftest import IMAGE
from tests.end_to_end.cluster import Cluster, make
from tests.end_to_end.run.terminal import Terminal

PROMPT = ("python3", "-i", "-q")
WHO = b"import os, sys; print(sys.stdin.isatty(), os.environ['TERM'])\n"
STOPS = "import os\nrank = os.environ['RANK']\nif rank == '1':\n    breakpoint()\nprint('rank', rank, 'goes on')\n"


@pytest.fixture
def running(tmp_path: Path, docker: str) -> Iterator[Cluster]:
    made = make(tmp_path / "data", tmp_path)
    made.env |= {"DOCKER_HOST": f"unix://{docker}"} | {k: v for k, v in os.environ.items() if k == "PYTHONPATH"}
    made.up("--nodes", "2")
    yield made
    made.run("rowlock", "down", "--yes")


def test_a_prompt_is_what_docker_gives(running: Cluster) -> None:
    ways = {
        "docker": ("docker", "run", "-it", "--rm", "--network", "none", IMAGE, *PROMPT),
        "container": ("rowlock", "run", "-it", "--rm", "--name", "there", "--image", IMAGE, "--", *PROMPT),
        "process": ("rowlock", "run", "-it", "--rm", "--name", "here", "--", *PROMPT),
    }
    for way, argv in ways.items():
        terminal = Terminal(running, *argv)
        terminal.hear(b">>> ")
        terminal.type(WHO)
        terminal.hear(b"True xterm")
        terminal.type(b"import time; time.sleep(600)\n")
        terminal.type(b"\x03")
        terminal.hear(b"KeyboardInterrupt")
        terminal.type(b"exit(3)\n")
        assert terminal.end() == 3, way


def test_a_breakpoint_of_one_rank(running: Cluster) -> None:
    flags = ("-n", "2", "--debug", "1", "--name", "stop", "--image", IMAGE)
    terminal = Terminal(running, "rowlock", "run", *flags, "--", "python3", "-c", f"exec({STOPS!r})")
    terminal.hear(b"(Pdb) ")
    terminal.type(b"p 'it is ' + rank\n")
    terminal.hear(b"'it is 1'")
    terminal.type(b"c\n")
    terminal.hear(b"rank 1 goes on")
    terminal.hear(b"Job stop is completed")
    assert terminal.end() == 0
    assert "rank 0 goes on" in running.run("rowlock", "logs", "stop")
