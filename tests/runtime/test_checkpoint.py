"""Everything that a run is made of comes back as it was; what does not fit is refused with its name."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rowlock.runtime import Checkpoint, ResumableSampler, progress
from rowlock.runtime.snapshot_files import CheckpointError

torch: Any = None


@pytest.fixture(scope="module", autouse=True)
def torch_imported() -> None:
    """For the first test, not when tests are collected: every run of other tests would pay three seconds and 470 MB."""
    global torch
    torch = pytest.importorskip("torch", reason="torch is not installed: `make .venv/.torch` installs it")


class Training:
    """A small run with everything that a checkpoint keeps."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        torch.manual_seed(3)
        random.seed(3)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [3, 6])
        self.generator = import_module("numpy").random.default_rng(3)
        self.sampler = ResumableSampler(12, 3, seed=3)
        self.loader = torch.utils.data.DataLoader(torch.arange(48.0).reshape(12, 4), batch_sampler=self.sampler)
        self.notes = {"best": 0.0}
        self.checkpoint = Checkpoint(
            directory=directory, every=5, on_sigterm=False, model=self.model, optimizer=self.optimizer,
            scheduler=self.scheduler, sampler=self.sampler, generator=self.generator, notes=self.notes, **settings,
        )  # fmt: skip

    def train(self, last: int) -> list[str]:
        step, seen = self.checkpoint.load(), []
        while step < last:
            for inputs in self.sampler.batches(self.loader):
                scale = random.random() + float(self.generator.random())
                loss = (self.model(inputs / 48) * scale).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.notes["best"] = step / 2
                step += 1
                seen.append(f"{step} {loss.item().hex()} {inputs[:, 0].tolist()} {self.scheduler.get_last_lr()}")
                self.checkpoint.step(step)
                if step == last:
                    break
        self.checkpoint.wait()
        return seen


def test_a_run_that_goes_on_is_the_run_that_never_stopped(tmp_path: Path) -> None:
    whole = Training(tmp_path / "whole").train(20)
    Training(tmp_path / "parts").train(13)  # epochs of four steps, saved at 5 and 10: in the middle of one
    resumed = Training(tmp_path / "parts")
    assert resumed.train(20) == whole[10:]
    assert resumed.notes == {"best": 9.5}


def test_the_state_of_numpys_old_generator_comes_back(tmp_path: Path) -> None:
    numpy = import_module("numpy")
    training = Training(tmp_path)
    training.checkpoint.save(1)
    training.checkpoint.wait()
    drawn = numpy.random.random(4).tolist()
    assert Training(tmp_path).checkpoint.load() == 1
    assert numpy.random.random(4).tolist() == drawn


def test_objects_that_differ_are_named(tmp_path: Path) -> None:
    Training(tmp_path).train(5)
    model = torch.nn.Linear(1, 1)
    with pytest.raises(CheckpointError, match="they differ in generator, notes, optimizer, sampler, scheduler"):
        Checkpoint(directory=tmp_path, model=model, on_sigterm=False).load()


def test_what_has_no_state_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a function has no state that a checkpoint could keep"):
        Checkpoint(directory=tmp_path, loss=test_objects_that_differ_are_named)
    with pytest.raises(ValueError, match="name what has a state"):
        Checkpoint(directory=tmp_path)
    with pytest.raises(ValueError, match="at least 1"):
        Checkpoint(directory=tmp_path, every=0, notes={})


def test_a_checkpoint_that_cannot_be_written_stops_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    training = Training(tmp_path / "file")
    with pytest.raises(CheckpointError, match="could not be written"):
        training.train(6)


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Training(tmp_path).train(10)
    (tmp_path / "step-000000010" / "rank-0.pt").write_bytes(b"zero")
    assert Training(tmp_path).checkpoint.load() == 5
    assert "step-000000010 is not whole (rank-0.pt is not what was written)" in capfd.readouterr().err


def test_another_data_set_is_refused(tmp_path: Path) -> None:
    sampler = ResumableSampler(10, 2)
    with pytest.raises(ValueError, match="made with length 12"):
        sampler.load_state_dict({"epoch": 0, "position": 1, "seed": 0, "length": 12})
    with pytest.raises(ValueError, match="choose a smaller batch_size"):
        ResumableSampler(3, 2, rank=0, world_size=2)


def test_who_takes_the_last_batch_and_asks_for_no_more_begins_the_next_epoch() -> None:
    sampler = ResumableSampler(8, 2, seed=1)
    first = sampler.batches([[0], [1], [2], [3]])
    assert [next(first) for _ in range(4)] == [[0], [1], [2], [3]] and (sampler.epoch, sampler.position) == (0, 4)
    assert next(sampler.batches([[4], [5]])) == [4] and (sampler.epoch, sampler.position) == (1, 1)


def test_ranks_share_an_epoch(tmp_path: Path) -> None:
    shares = [[i for batch in ResumableSampler(11, 2, rank=rank, world_size=2) for i in batch] for rank in (0, 1)]
    assert len(shares[0]) == len(shares[1]) == 4
    assert len({*shares[0], *shares[1]}) == 8, "no sample twice"


def test_sigterm_saves_at_the_next_step_and_ends(tmp_path: Path) -> None:
    program = (
        "import os, signal, torch\n"
        "from rowlock.runtime import Checkpoint\n"
        "model = torch.nn.Linear(1, 1)\n"
        "checkpoint = Checkpoint(model=model, every=1000)\n"
        "step = checkpoint.load()\n"
        "while True:\n"
        "    step += 1\n"
        "    if step == 7: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    checkpoint.step(step)\n"
    )
    environment = {**os.environ, "ROWLOCK_CHECKPOINT_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "told to end: saved after step 7" in done.stderr
    assert Checkpoint(directory=tmp_path, on_sigterm=False, model=torch.nn.Linear(1, 1)).load() == 7


def test_progress_is_a_line_of_rank_0(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    progress(10, 100, loss=0.31250001, lr=1e-5)
    progress(11)
    monkeypatch.setenv("RANK", "1")
    progress(12, loss=1.0)
    assert capsys.readouterr().out == "step=10/100 loss=0.3125 lr=1e-05\nstep=11\n"
