"""Ranks that a program starts itself, without numbers: told from its data loaders by the connections between them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.waiting import until

from rowlock.diagnostics.rank_processes import find_python_ranks

PROGRAM = """
import mmap, multiprocessing, os, socket, sys, time
how, place = sys.argv[1], os.environ["SCRATCH"]
def work(index):
    if how != "without a framework":
        file = open(place + "/site-packages/torch/lib.so", "rb")
        kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    if how in ("inherited", "apart"):
        pass
    elif index == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        open(place + "/new", "w").write(str(listener.getsockname()[1]))
        os.rename(place + "/new", place + "/port")
        peer, _ = listener.accept()
    else:
        while not os.path.exists(place + "/port"):
            time.sleep(0.01)
        peer = socket.create_connection(("127.0.0.1", int(open(place + "/port").read())))
    open(f"{place}/ready-{index}", "w").close()
    time.sleep(600)
if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    ends = socket.create_connection(listener.getsockname()), listener.accept()[0]  # as a store of its own
    context = multiprocessing.get_context("fork" if how == "inherited" else "spawn")
    children = [context.Process(target=work, args=(index,)) for index in range(2)]
    for child in children:
        child.start()
    print(*(child.pid for child in children), flush=True)
    while how == "computes":
        pass
    children[0].join()
"""


@contextmanager
def started(how: str, place: Path) -> Iterator[tuple[int, list[int]]]:
    """The pid of the program, and those of its children."""
    (place / "site-packages" / "torch").mkdir(parents=True)
    (place / "site-packages" / "torch" / "lib.so").write_bytes(b"x" * 4096)
    (place / "train.py").write_text(PROGRAM)
    env = {key: value for key, value in os.environ.items() if key not in ("RANK", "LOCAL_RANK")}
    argv = [sys.executable, str(place / "train.py"), how]
    program = subprocess.Popen(argv, env={**env, "SCRATCH": str(place)}, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert program.stdout is not None
        children = [int(word) for word in program.stdout.readline().split()]
        deadline = time.monotonic() + 120
        while not all((place / f"ready-{index}").exists() for index in range(2)):
            assert time.monotonic() < deadline, "the children do not begin"
            time.sleep(0.01)
        yield program.pid, children
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        assert program.stdout is not None
        program.stdout.close()


@pytest.mark.parametrize(
    ("how", "are_ranks"),
    [("connected", True), ("apart", False), ("inherited", False), ("without a framework", False), ("computes", False)],
)
def test_children_that_are_connected_are_ranks(tmp_path: Path, how: str, are_ranks: bool) -> None:
    with started(how, tmp_path) as (program, children):
        expected = [(pid, "") for pid in (children if are_ranks else [program])]
        until(
            lambda: find_python_ranks(program) == expected, "the program waits for them", 60
        )  # it may not have come to that yet
