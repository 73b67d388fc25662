"""Which errors come with what a user can do about them: by the words of torch, NCCL, JAX and CPython."""

from __future__ import annotations

import pytest

from rowlock.diagnosis.hints import error_hint


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("OSError", "[Errno 28] No space left on device: '/dev/shm/cache.bin'"),
        ("OSError", "[Errno 28] No space left on device: '/psm_1f2e3d4c'"),
        ("RuntimeError", "unable to write to file </torch_95_1480123_0>: No space left on device (28)"),
        ("RuntimeError", "unable to allocate shared memory(shm) for file </torch_95_1480123_0>: Success (0)"),
        (
            "RuntimeError",
            "DataLoader worker (pid 61) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared"
            " memory. Please try to raise your shared memory limit.",
        ),
        ("DistBackendError", "Error while creating shared memory segment /dev/shm/nccl-xUQ2bY (size 9637888), error: No space"),
    ],
)  # fmt: skip
def test_a_full_shared_memory_is_made_larger(kind: str, text: str) -> None:
    assert error_hint(kind, text).startswith("its /dev/shm was full: make it larger with `--large-shm`")


@pytest.mark.parametrize(
    ("kind", "text", "hint"),
    [
        ("BdbQuit", "", "it came to a breakpoint and had no terminal: `rowlock run --tty` gives"),
        ("EOFError", "EOF when reading a line", "it read its standard input, and had none: pipe it into `rowlock run`"),
        ("ValueError", "Number of processes must be defined.", "jax.distributed.initialize reads no numbers from"),
        ("KeyError", "'LOCAL_RANK'", "the only process of a job has no local rank: `rowlock run --nproc-per-node 1`"),
    ],
)
def test_what_a_rank_lacks_is_given_to_it(kind: str, text: str, hint: str) -> None:
    assert error_hint(kind, text).startswith(hint)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("EOFError", "Ran out of input"),  # pickle's: a file is cut off
        ("EOFError", ""),
        ("KeyError", "'RANK_OF'"),
        ("ValueError", "BdbQuit"),
        ("OSError", "[Errno 28] No space left on device: '/data/cache.bin'"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/dev/shm/lock'"),
    ],
)
def test_other_errors_speak_for_themselves(kind: str, text: str) -> None:
    assert error_hint(kind, text) == ""
