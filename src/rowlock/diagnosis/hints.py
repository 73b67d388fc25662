"""Hints for errors whose own text does not tell the user what to do: a clause that follows the error."""

from __future__ import annotations

import re

LARGER_SHM = (
    "make it larger with `--large-shm` (runai), or with a memory volume there (an emptyDir with `medium: Memory`)"
)
EXIT_CODES = {124: "`timeout` ends a program so when its time is up"}
"""What an exit code of a program tells that logged no error."""
_TERMINAL = "`rowlock run --tty` gives a terminal to the first rank, `--debug RANK` to another"
_HINTS = (
    (
        re.compile(
            r"/dev/shm\b.*No space left|No space left.*(/dev/shm\b|'/psm_)|/torch_\d.*No space left"
            r"|out of shared memory|(Error while creating|unable to (allocate|mmap|resize)) shared memory",
            re.DOTALL,
        ),
        f"its /dev/shm was full: {LARGER_SHM}",
    ),
    (re.compile(r"^BdbQuit$"), f"it came to a breakpoint and had no terminal: {_TERMINAL}"),
    (
        re.compile(r"^EOFError: EOF when reading a line"),
        f"it read its standard input, and had none: pipe it into `rowlock run`; {_TERMINAL}",
    ),
    (
        re.compile(r"^ValueError: (Number of processes|The process id of the current process) must be defined\."),
        "jax.distributed.initialize reads no numbers from the environment of a TrainJob: pass"
        ' num_processes=int(os.environ["JAX_NUM_PROCESSES"]) and process_id=int(os.environ["JAX_PROCESS_ID"])',
    ),
    (
        re.compile(r"^KeyError: '(LOCAL_RANK|LOCAL_WORLD_SIZE)'$"),
        "the only process of a job has no local rank: `rowlock run --nproc-per-node 1` gives it one",
    ),
)
"""Pattern for an error (`kind: text`) and its hint: torch, NCCL and JAX, CPython's `multiprocessing` and `pdb`."""


def error_hint(kind: str, text: str = "") -> str:
    """The hint for an error, or for the last line of a log; "" for most."""
    said = f"{kind}: {text}" if text else kind
    return next((hint for pattern, hint in _HINTS if pattern.search(said)), "")
