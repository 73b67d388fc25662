"""What programs print, as lines: whatever way it is cut, and whatever bars they draw."""

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rowlock.rest.log_streams.lines import MAX_LINE, LineTag, lines_of_local_rank, split_lines
from rowlock.rest.log_streams.rows import final_state, shorten


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


def nested_bars(*, leave: bool, write: bool) -> bytes:
    """What tqdm 4.67 prints of two bars, one for each round of the other (its cursor moves, and what it draws)."""
    out = b"\r0/2 rounds"
    for number in (1, 2):
        inner = b"%d steps" % number
        out += b"".join(b"\n\r%d/2 of " % step + inner + b"\x1b[A" for step in (0, 1, 2))
        out += b"\r2/2 of " + inner + b"\n" if leave else b"\n\r             \r\x1b[A"
        if write:
            out += b"\r          \rround %d done\n" % number
        out += b"\r%d/2 rounds" % number
    return out + b"\nall done\nbye\n"


@pytest.mark.parametrize("leave", [True, False])
@pytest.mark.parametrize("write", [True, False])
def test_bars_in_bars_are_a_line_each(leave: bool, write: bool) -> None:
    out = nested_bars(leave=leave, write=write)
    rounds = [[b"2/2 of %d steps\n" % n] * leave + [b"round %d done\n" % n] * write for n in (1, 2)]
    wanted = [b"0/2 rounds\n", *rounds[0], *rounds[1], b"2/2 rounds\n", b"all done\n", b"bye\n"]
    assert split(out) == wanted
    for size in (1, 2, 3, 7, 20):
        assert split(*(out[at : at + size] for at in range(0, len(out), size))) == wanted
    stamp = b"2026-01-01T00:00:00Z "
    dated = b"".join(stamp + line + b"\n" for line in out.removesuffix(b"\n").split(b"\n"))
    assert split(dated, stamped=True) == [stamp + line for line in wanted]


def test_who_watches_sees_the_bar_that_moves() -> None:
    assert split(b"\r0/2", b"\n\r1 of 3\x1b[A", b"\n\r2 of 3\x1b[A", b"\r1/2", states=True) == [
        b"\r0/2\n", b"0/2\n", b"\r1 of 3\n", b"\r2 of 3\n", b"\r1/2\n", b"1/2\n", b"2 of 3\n",
    ]  # fmt: skip


def test_rows_that_are_drawn_over_are_lines_in_the_end() -> None:
    """As rich draws: it clears each row on the way up, and draws all of them anew."""
    draws = b"".join(b"\r\x1b[2K\x1b[1A\x1b[2Ka %d\nb %d" % (n, n) for n in range(100))
    assert split(b"a\nb" + draws + b"\nend\n") == [b"a\n", b"a 99\n", b"b 99\n", b"end\n"]


@pytest.mark.parametrize("evil", [b"\x1b[A" * 300_000, b"\x1b[999A\r\n" * 30_000, b"\x1b[A\r#\n\n" * 30_000])
def test_what_moves_the_cursor_for_ever_is_bounded(evil: bytes) -> None:
    lines = split(*(evil[at : at + 65536] for at in range(0, len(evil), 65536)), b"\nend\n")
    assert lines[-1] == b"end\n" and sum(map(len, lines)) <= len(evil) + 100


@pytest.mark.parametrize("evil", [b"\r#" + b"\x1b[A" * 300_000, b"\r" + b"\x1b[A\r#" * 100_000])
def test_what_moves_the_cursor_for_ever_is_not_kept(evil: bytes) -> None:
    """Else each chunk of a megabyte's line looks through all before it, and holds the event loop for a fifth of a second."""
    assert shorten(evil, stamped=False) == b"\r#"


def test_a_line_too_long_for_a_drawing_ends_what_is_drawn() -> None:
    assert split(b"\r0/2\n\r1 of 3\x1b[A\n\r2 of 3\x1b[A\r1/2\n" + b"x" * 70_000 + b"\nend\n") == [
        b"0/2\n", b"1/2\n", b"2 of 3\n", b"x" * 70_000 + b"\n", b"end\n",
    ]  # fmt: skip
