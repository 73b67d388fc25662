"""`rowlock verify-resume` on programs that fail, that are wrapped, and that are told to end. They need no tensors: what they
import as torch is a stub of a few lines, which takes no seconds to load. tests/end_to_end has the real one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import BIN

TORCH = """
import os, pickle, threading, time, types
with open("torch-importers", "a") as importers:
    print(threading.current_thread().name, file=importers)
class Tensor: pass
class Other: pass
nn, optim = types.SimpleNamespace(Module=Other), types.SimpleNamespace(Optimizer=Other)
cuda = types.SimpleNamespace(is_available=lambda: False)
distributed = types.SimpleNamespace(is_available=lambda: False)
get_rng_state, set_rng_state = list, list
def save(obj, path):
    time.sleep(float(os.environ.get("SLOW_SAVE", "0")))  # a disk that is slower than the steps
    with open(path, "wb") as file: pickle.dump(obj, file)
def load(path, **_):
    with open(path, "rb") as file: return pickle.load(file)
"""
PROGRAM = """
import os, sys
from rowlock.runtime import Checkpoint
class Sum:
    total = 0
    def state_dict(self): return {"total": self.total}
    def load_state_dict(self, state): self.total = state["total"]
numbers, step_size = Sum(), 1
checkpoint = Checkpoint(numbers=numbers, on_sigterm=False)
step = checkpoint.load()
# here
while step < int(os.environ.get("PROGRAM_ENDS", "50")):
    step += 1
    numbers.total += step * step_size
    checkpoint.step(step)
"""
KILLED_AFTER_ITS_FIRST_CHECKPOINT, KILLED_LATE = "2", "4"
"""Seeds, for 12 steps: killed after step 3, when the checkpoint of step 2 is the only one; killed after step 6."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TMPDIR": str(place / "tmp"), "PYTHONPATH": str(place)}


def verify(place: Path, *words: str, here: str = "", seed: str = KILLED_LATE, **variables: str) -> tuple[int, str]:
    (place / "train.py").write_text(PROGRAM.replace("# here", here))
    argv = ["rowlock", "verify-resume", "--steps", "12", "--seed", seed, *words]
    argv = argv if "--" in words else [*argv, "--", sys.executable, "train.py"]
    env = environment(place) | variables
    done = subprocess.run(argv, cwd=place, env=env, capture_output=True, text=True, timeout=200)
    assert not list((place / "tmp").iterdir())
    return done.returncode, done.stdout + done.stderr


def test_a_program_without_torch_of_its_own_is_exact(place: Path) -> None:
    """The thread that writes was the first to import it, and the next step met a module that was half there."""
    code, said = verify(place)
    assert code == 0 and "Exact: steps 5 to 12" in said, said
    assert set((place / "torch-importers").read_text().split()) == {"MainThread"}


def test_only_steps_that_were_taken_are_called_exact(place: Path) -> None:
    code, said = verify(place, PROGRAM_ENDS="9")
    assert code == 0 and "Exact: steps 5 to 9 are" in said, said


def test_the_only_checkpoint_is_whole_when_the_program_is_killed(place: Path) -> None:
    """It was still being written: the program had "begun anew", and was told that it does not load."""
    code, said = verify(place, seed=KILLED_AFTER_ITS_FIRST_CHECKPOINT, SLOW_SAVE="0.5")
    assert code == 0 and "resumed after step 2" in said, said


def test_a_shell_script_around_the_program_may_end_with_a_code_of_its_own(place: Path) -> None:
    (place / "run.sh").write_text(f"{sys.executable} train.py\nexit $?\n")
    code, said = verify(place, "--", "sh", "run.sh")
    assert code == 0 and "Exact: steps 5 to 12" in said, said


def test_ranks_that_the_program_starts_itself_are_compared_too(place: Path) -> None:
    """As torchrun does. The second one of these is no part of a group, so that it does not resume."""
    (place / "both.py").write_text(
        "import os, subprocess, sys\n"
        "ranks = [subprocess.Popen([sys.executable, 'train.py'], env={**os.environ, 'RANK': str(n),\n"
        "    'ROWLOCK_CHECKPOINT_DIR': os.environ['ROWLOCK_CHECKPOINT_DIR'] + str(n)}) for n in range(2)]\n"
        "sys.exit(max(abs(rank.wait()) for rank in ranks))\n"
    )
    code, said = verify(place, "--", sys.executable, "both.py")
    assert code == 1 and "1/3 whole: steps 1 to 12 on 2 ranks" in said, said
    assert "the program began anew after it was killed at step 6" in said


@pytest.mark.parametrize(
    ("here", "sentence"),
    [
        ("step = 0", "after the resume rank 0 did not take the steps after 4 that it took in the whole run"),
        ("if step: sys.exit('I cannot resume')", "rank 0 ended with 1 in run 3/3 (resumed); its last words"),
        ("step_size = 2 if step else 1", "this object came back as it was, and something that it works on did not"),
    ],
)
def test_a_program_that_resumes_wrongly_is_told_how(place: Path, here: str, sentence: str) -> None:
    code, said = verify(place, here=here)
    assert code == 1 and sentence in said, said


@pytest.mark.parametrize(
    ("timeout", "code", "sentence"),
    [
        ("0", 2, "--timeout must be longer than 0s"),
        ("1s", 1, "rank 0 did not end in 1 s (--timeout) in run 1/3 (whole)"),
    ],
)
def test_a_time_limit_is_said(place: Path, timeout: str, code: int, sentence: str) -> None:
    found, said = verify(place, "--timeout", timeout, "--", "sleep", "100")
    assert found == code and sentence in said, said


def test_with_json_nothing_else_is_said(place: Path) -> None:
    code, said = verify(place, "--json")
    assert code == 0 and json.loads(said)["exact"]


@contextlib.contextmanager
def waiting(place: Path, ignores_sigterm: bool = False) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A `verify-resume` whose rank waits for ever, and the process id of that rank."""
    pipe = place / "pid"
    os.mkfifo(pipe)
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores_sigterm else ""
    (place / "train.py").write_text(
        f"import os, signal\n{ignore}\nopen({str(pipe)!r}, 'w').write(str(os.getpid()))\nsignal.pause()\n"
    )
    argv = ["rowlock", "verify-resume", "--", sys.executable, "train.py"]
    process = subprocess.Popen(argv, cwd=place, env=environment(place), stdout=subprocess.DEVNULL)
    rank = int(pipe.read_text())
    try:
        yield process, rank
    finally:
        for pid in (process.pid, rank):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_who_ends_it_leaves_neither_ranks_nor_files(place: Path, number: signal.Signals, code: int) -> None:
    """SIGTERM (`timeout`) and SIGHUP (a closed terminal) left the ranks running for ever, and their files in /tmp."""
    with waiting(place) as (process, rank):
        process.send_signal(number)
        assert process.wait(200) == code
        with pytest.raises(ProcessLookupError):
            os.kill(rank, 0)
    assert not list((place / "tmp").iterdir())


def test_a_second_interrupt_kills_ranks_that_do_not_end(place: Path) -> None:
    with waiting(place, ignores_sigterm=True) as (process, rank):
        process.send_signal(signal.SIGINT)
        while process.poll() is None:  # which of them is the second is not for us to say
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
        assert process.returncode == 130
        with pytest.raises(ProcessLookupError):
            os.kill(rank, 0)
