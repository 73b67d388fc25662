"""Bars of ranks on a terminal: what stands there after every write."""

import io
import os
import sys

import pyte
import pytest

from rowlock.cli.live_lines import LiveLines


class Screen(io.StringIO):
    """A terminal of 20 columns and 7 lines."""

    def __init__(self) -> None:
        super().__init__()
        self._screen = pyte.Screen(20, 7)
        self._stream = pyte.Stream(self._screen)

    def write(self, text: str) -> int:
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display if line.strip()]


def on_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """From now on stdout. Not a fixture: pytest sets stdout anew when a test begins."""
    made = Screen()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((20, 7)))
    return made


def test_bars_stay_below_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    live = LiveLines()
    for text in ("[rank 0] begin\n", "\r[rank 0] 10%\n", "\r[rank 1] 20%\n", "\r[rank 0] 30%\n", "[rank 1] hello\n"):
        live.write(text)
    assert screen.lines == ["[rank 0] begin", "[rank 1] hello", "[rank 0] 30%"]
    live.write("a remark\n")
    live.write("[rank 0] 100%\n")
    assert screen.lines == ["[rank 0] begin", "[rank 1] hello", "a remark", "[rank 0] 100%"]


def test_what_was_shown_last_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    live = LiveLines()
    live.write("\r[rank 0] 99%\n")
    live.clear()
    live.write("[rank 0] Killed\n")
    assert screen.lines == ["[rank 0] 99%", "[rank 0] Killed"]


def test_bars_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    live = LiveLines()
    for rank in range(9):
        live.write(f"\r[rank {rank}] {'#' * 50}\n")
    assert screen.lines == ["[rank 0] ##########", "[rank 1] ##########", "and 7 more ranks"]
