"""`rowlock doctor`: what it says of a machine that lacks something, and that the fix is a line that works."""

from __future__ import annotations

import resource
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rowlock.cli import client
from rowlock.cli.commands import doctor
from rowlock.cli.run import command as run

DiskUsage = namedtuple("DiskUsage", "total used free")


@pytest.mark.parametrize(
    ("hard", "state", "found"),
    [
        (1024, "warn", "at most 1024 a process"),
        (4096, "ok", "up to 4096 a process"),
        (resource.RLIM_INFINITY, "ok", "no limit"),
    ],
)
def test_a_low_limit_of_open_files_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, hard: int, state: str, found: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, hard))
    finding = doctor.open_files()
    assert (finding.state, finding.found) == (state, found)
    assert ("raise it to 4096" in finding.fix) == (state == "warn")


@pytest.mark.parametrize(("free", "state"), [(64 << 20, "warn"), (512 << 20, "ok")])
def test_little_shared_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(8 << 30, (8 << 30) - free, free))
    finding = doctor.shared_memory()
    assert (finding.state, finding.found) == (state, f"/dev/shm ({free / 2**30:.1f} GiB free)")
    assert ("--shm-size" in finding.fix) == (state == "warn")


def test_a_machine_without_shared_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    finding = doctor.shared_memory(str(tmp_path / "shm"))
    assert (finding.state, finding.found) == ("warn", f"{tmp_path / 'shm'}: No such file or directory")
    monkeypatch.setattr("sys.platform", "darwin")
    assert doctor.shared_memory(str(tmp_path / "shm")).state == "ok"


def test_a_data_directory_that_cannot_be_is_not_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    finding = doctor.disk_space(str(tmp_path / "file" / "below"))
    assert finding.state == "bad" and finding.found.endswith("file is a file") and "--data-dir" in finding.fix
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(0, 0, 0))
    finding = doctor.disk_space(str(tmp_path / "new"))
    assert finding.found == f"{tmp_path / 'new'}: {tmp_path} holds no files", "as /proc does not"


def test_the_lines_that_start_and_stop_a_server_name_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line: Any = SimpleNamespace(data_dir=str(tmp_path), server=None, simulated_gpus=None, quiet=False)
    assert doctor.server(line, str(tmp_path)).fix == f"start it: `rowlock up -d --data-dir {tmp_path}`"
    monkeypatch.setattr(run, "start_server", lambda directory, argv: {"url": "https://127.0.0.1:1"})
    monkeypatch.setattr(client, "connect", lambda line: None)
    run.find_server(line)
    said = capsys.readouterr()
    assert f"(`rowlock down --data-dir {tmp_path}` stops it)" in said.out + said.err
