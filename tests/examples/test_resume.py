"""The examples of an exact resume with other people's training loops: killed near the end of an epoch, and on into the next."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from tests.end_to_end.cluster import BIN, REPO


@pytest.mark.examples
@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", ["transformers", "lightning"])
def test_a_killed_run_goes_on_bit_by_bit(framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: `make test-examples` installs it")
    program = REPO / "examples" / "resume" / f"train_{framework}.py"
    # an epoch has 16 steps on two ranks; seed 2 kills after step 18, so that the resume begins at the end of an epoch
    argv = ["rowlock", "verify-resume", "-n", "2", "--steps", "20", "--seed", "2", "--timeout", "3m", "--"]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*argv, sys.executable, str(program)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # usually from step 16; where the disk is slow that checkpoint was not whole yet, and the one before is used
    assert "Exact: steps" in done.stdout and "to 20 are the same bit by bit" in done.stdout
