"""The programs of `docs/first-job.md`, as processes of this machine and in containers of Docker: they print the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.containers.conftest import IMAGE
from tests.end_to_end.cluster import make

RANKS = 'import os; print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])'
LAUNCHED = (
    "import os; names = 'RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT'.split()\n"
    "print(*(f'{name}={os.environ[name]}' for name in names))"
)
BAR = "import time\nfor done in range(4): print(f'\\r{done}/3', end='', flush=True); time.sleep(0.05)\nprint()"
FAILURE = "import sys; print('it', 'fails'); sys.stdout.flush(); raise SystemExit(3)"
PROGRAMS: dict[str, tuple[list[str], int, str, int]] = {
    "hello": (["python3", "-c", RANKS], 2, "", 0),
    "launched": (["python3", "-c", LAUNCHED], 2, "", 0),
    "stdin": (["tr", " ", "+"], 1, "1 2 3\n", 0),
    "bar": (["python3", "-c", BAR], 1, "", 0),
    "failure": (["python3", "-c", FAILURE], 1, "", 3),
}
"""Name → command, nodes, stdin, exit code."""


@pytest.mark.timeout(600)  # ten jobs
def test_they_print_the_same(tmp_path: Path, docker: str) -> None:
    cluster = make(tmp_path / "data", tmp_path)
    cluster.env |= {"DOCKER_HOST": f"unix://{docker}"} | {k: v for k, v in os.environ.items() if k == "PYTHONPATH"}
    cluster.up("--nodes", "2", "--simulated-gpus", "1")
    try:
        for name, (command, nodes, stdin, code) in PROGRAMS.items():
            said = {}
            for image in ("host", IMAGE):
                flags = ["--rm", "--clean-env", "--name", name, "--nnodes", str(nodes), "--image", image]
                done = subprocess.run(
                    ["rowlock", "run", *flags, "--", *command],
                    input=stdin, env=cluster.env, capture_output=True, text=True, timeout=120, check=False,
                )  # fmt: skip
                assert done.returncode == code, done.stdout + done.stderr + cluster.last_words()
                said[image] = sorted(done.stdout.splitlines())
            assert said["host"] and said["host"] == said[IMAGE]
    finally:
        cluster.run("rowlock", "down", "--yes")
