"""What programs print, as lines: whatever way it is cut, and whatever bars they draw."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rowlock.rest.log_streams.lines import MAX_LINE, LineTag, final_state, lines_of_local_rank, split_lines


def split(*chunks: bytes, **options: bool) -> list[bytes]:
    async def whole() -> list[bytes]:
        async def source() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return [line async for line in split_lines(source(), **options)]

    return asyncio.run(whole())


BAR = b"\r  0%|    |\r 50%|##  |\r100%|####|\nnext\n"


def test_a_bar_is_what_it_said_last() -> None:
    assert split(BAR) == [b"100%|####|\n", b"next\n"]
    for size in range(1, len(BAR)):
        assert split(*(BAR[at : at + size] for at in range(0, len(BAR), size))) == [b"100%|####|\n", b"next\n"]


def test_who_watches_sees_each_state_once() -> None:
    assert split(b"\r 1%", b"\r 2%", b"", b"\r 2%", b"\r 3%\r", b"\r 4%\ndone", states=True) == [
        b"\r 1%\n", b"\r 2%\n", b"\r 3%\n", b" 4%\n", b"done\n",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", b"plain"),
        (b"windows\r", b"windows"),
        (b"50%\r100%\r", b"100%"),
        (b"\r\x1b[A\x1b[2K 7 \x1b[32mgreen\x1b[0m", b" 7 \x1b[32mgreen\x1b[0m"),
    ],
)
def test_a_line_as_a_terminal_shows_it(line: bytes, shown: bytes) -> None:
    assert final_state(line) == shown


def test_the_time_before_a_line_stays() -> None:
    stamp = b"2026-01-01T00:00:00.000000001Z "
    assert split(stamp + b"\r 1%\r 2%\n", stamp + b"x\n", stamped=True) == [stamp + b" 2%\n", stamp + b"x\n"]


def test_a_line_without_end_is_cut_and_a_bar_is_not_kept() -> None:
    lines = split(*[b"x" * (MAX_LINE // 4)] * 9)
    assert [len(line) for line in lines] == [MAX_LINE + MAX_LINE // 4 + 1, MAX_LINE + 1]
    assert split(*[b"\r" + b"=" * 1000] * 5000) == [b"=" * 1000 + b"\n"]


def test_lines_of_ranks_that_torchrun_starts_are_the_ranks() -> None:
    tag = LineTag("worker-0", 4)
    assert tag.put_before(b"[default1]:step 3\n", stamped=False) == b"[rank 5] step 3\n"
    assert tag.put_before(b"2026-01-01T00:00:00Z [default0]:x\n", stamped=True) == b"[rank 4] 2026-01-01T00:00:00Z x\n"
    assert tag.put_before(b"torchrun's own\n", stamped=False) == b"[worker-0] torchrun's own\n"
    assert LineTag("rank 1").put_before(b"[default0]:x\n", stamped=False) == b"[rank 1] [default0]:x\n", (
        "not known whose"
    )


@pytest.mark.parametrize("stamp", [b"", b"2026-01-01T00:00:00Z "])
def test_the_lines_of_one_of_the_ranks_in_a_pod(stamp: bytes) -> None:
    """Those that bear no mark are the pod's, and so of each of its ranks; a mark inside a line is the program's own text."""
    texts = [
        b"[default0]:no\n",
        b"[default1]:first\n",
        b"agent\n",
        b"see [default0]:\n",
        b"[default11]:no\n",
        b"[default1]:\n",
    ]

    async def play() -> list[bytes]:
        async def source() -> AsyncIterator[bytes]:
            for text in texts:
                yield stamp + text

        return [line async for line in lines_of_local_rank(source(), 1, stamped=bool(stamp))]

    assert asyncio.run(play()) == [stamp + text for text in (b"first\n", b"agent\n", b"see [default0]:\n", b"\n")]


def test_the_real_torchrun_says_whose_a_line_is(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed: `make .venv/.torch` installs it")
    script = tmp_path / "says.py"
    script.write_text("import os\nprint('I am', os.environ['RANK'])\n")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    env = {**os.environ, "PET_TEE": "3", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, env=env, capture_output=True, check=True, timeout=300)
    lines = {LineTag("rank 0", 0).put_before(line, stamped=False) for line in done.stdout.splitlines()}
    assert {b"[rank 0] I am 0", b"[rank 1] I am 1"} <= lines, done.stdout
