"""`rowlock verify-resume`: real programs with real torch, killed; exact ones are called exact, and what is forgotten is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import BIN, REPO

if not find_spec("torch"):  # not imported: the programs do that
    pytest.skip("torch is not installed: `make .venv/.torch` installs it", allow_module_level=True)

PROGRAM = """
import torch
from torch.utils.data import DataLoader
from rowlock.runtime import Checkpoint, ResumableSampler
torch.manual_seed(1)
data = torch.randn(28, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
sampler = ResumableSampler(28, 4, seed=1)
loader = DataLoader(data, batch_sampler=sampler)
batches = lambda: sampler.batches(loader)
FORGET
checkpoint = Checkpoint(**objects)
step = checkpoint.load() if loads else 0
while step < 30:
    for inputs in batches():
        loss = model(inputs).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step(); scheduler.step()
        step += 1
        checkpoint.step(step)
"""
KEPT = "objects, loads = dict(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler), True\n"
FORGOTTEN = {
    "sampler": (
        "loader = DataLoader(data, batch_size=4, shuffle=True); batches = lambda: loader; del objects['sampler']",
        "inputs",
    ),
    "scheduler": ("del objects['scheduler']", "schedule"),
    "optimizer": ("del objects['optimizer']", "module"),
}
"""What is left out: how, and by what it shows first."""


def verify(program: Path, *flags: str, code: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    argv = ["rowlock", "verify-resume", "--seed", "5", *flags, "--", sys.executable, str(program)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=280, cwd=program.parent)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def script(place: Path, forget: str = "") -> Path:
    path = place / "train.py"
    path.write_text(PROGRAM.replace("FORGET", KEPT + forget))
    return path


def test_an_exact_program_is_called_exact(tmp_path: Path) -> None:
    said = verify(script(tmp_path), "--steps", "14", code=0).stdout
    assert "Exact: steps" in said and "to 14 are the same bit by bit" in said


@pytest.mark.parametrize("example", ["train.py", "train_fsdp.py"])
def test_the_examples_go_on_exactly_with_two_ranks(example: str) -> None:
    said = verify(REPO / "examples" / "resume" / example, "-n", "2", "--steps", "12", code=0).stdout
    assert "12 steps on 2 ranks" in said and "Exact: steps" in said


@pytest.mark.parametrize("what", FORGOTTEN)
def test_what_is_forgotten_is_named(tmp_path: Path, what: str) -> None:
    forget, cause = FORGOTTEN[what]
    verdict: dict[str, Any] = json.loads(verify(script(tmp_path, forget), "--steps", "14", "--json", code=1).stdout)
    assert not verdict["exact"] and verdict["difference"]["cause"] == cause, verdict
    assert verdict["difference"]["step"] == verdict["resumedAfter"] + 1
    assert what in verdict["difference"]["advice"]


def test_a_program_that_does_not_load_began_anew(tmp_path: Path) -> None:
    said = verify(script(tmp_path, "loads = False"), "--steps", "8", code=1).stderr
    assert "began anew after it was killed" in said and "call Checkpoint.load()" in said


def test_a_program_that_is_another_one_each_time_is_told_so(tmp_path: Path) -> None:
    said = verify(script(tmp_path, "torch.seed(); data.copy_(torch.randn(28, 4))"), "--steps", "8", code=1).stderr
    assert "two runs of the program differ without any resume, first in inputs at step 1" in said


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("print('hello')", "never called Checkpoint.step()"),
        (
            "import sys; print('some words'); sys.exit(3)",
            "rank 0 ended with 3 in run 1/3 (whole); its last words:\nsome words",
        ),
    ],
)
def test_a_program_that_does_not_take_part(tmp_path: Path, program: str, sentence: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(program)
    assert sentence in verify(path, code=1).stderr


def test_what_cannot_be_started_or_asked(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    for argv, code, sentence in (
        (["--", "/nowhere/python"], 127, "/nowhere/python cannot be started: No such file or directory"),
        ([], 2, "say what to run"),
        (["--steps", "2", "--", "true"], 2, "--steps at least 4"),
    ):
        done = subprocess.run(
            ["rowlock", "verify-resume", *argv], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code and sentence in done.stderr, done.stderr
