"""A start that takes long: it is waited for while it gets on, its stages are shown, and nothing is left of one that is given up."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from rowlock.cli.grammar import CommandError
from rowlock.cli.start import process
from rowlock.cli.start.process import start_server

SILENT = "import time; open('pid', 'w').write(str(__import__('os').getpid())); time.sleep(600)"
STAGES = "print('starting: reading cluster.db (91 MiB)', flush=True); print('error: no more', flush=True)"


def start(tmp_path: Path, program: str) -> str:
    with pytest.raises(CommandError) as refusal:
        start_server(str(tmp_path), [sys.executable, "-c", program])
    return refusal.value.message


def test_a_server_that_does_nothing_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STALLED_TIMEOUT", 1.0)
    assert "the server did nothing for 1 s, did not answer, and was stopped" in start(tmp_path, SILENT)
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


def test_a_server_that_gets_on_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    log = tmp_path / "server.log"
    log.touch()
    worker = process._StartProgress(os.getpid(), str(log), 0)  # this process is the server
    sleeper = process._StartProgress(0, str(log), 0)  # /proc/0 is nobody: no CPU time
    for _ in range(3):
        now += 100.0
        begun = time.process_time()
        while time.process_time() - begun < 0.05:
            pass
        assert not worker.is_stalled()
    assert sleeper.is_stalled()
    with log.open("a") as file:
        file.write("a line\n")
    assert not sleeper.is_stalled()


def test_the_stages_of_a_long_start_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(tmp_path, STAGES) == "no more"
    assert "starting: reading cluster.db (91 MiB)" in capsys.readouterr().err
