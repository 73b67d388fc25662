"""`rowlock run --bell` rings at the end of the job, and only where a terminal can ring."""

from __future__ import annotations

import io

import pytest

from rowlock.cli.commands.tree import ROOT, SHARED
from rowlock.cli.main import run
from rowlock.cli.run import command


class Terminal(io.StringIO):
    """What is written to a stderr that is, or is not, a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(("flags", "is_terminal", "rings"), [("--bell", True, 1), ("--bell", False, 0), ("", True, 0)])
def test_it_rings_once_when_the_job_has_ended(
    monkeypatch: pytest.MonkeyPatch, flags: str, is_terminal: bool, rings: int
) -> None:
    stderr = Terminal(is_terminal)
    monkeypatch.setattr("sys.stderr", stderr)

    def launch(*_: object) -> int:
        assert not stderr.getvalue(), "not before its end"
        return 3

    monkeypatch.setattr(command, "launch", launch)
    assert run(ROOT, ["run", *flags.split(), "--", "true"], SHARED) == 3, stderr.getvalue()
    assert stderr.getvalue() == "\a" * rings


def test_a_detached_run_cannot_ring(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ROOT, ["run", "-d", "--bell", "--", "true"], SHARED) == 2
    assert "leave one of them out" in capsys.readouterr().err
