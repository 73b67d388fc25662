"""What is written down of the code of a run: commit, snapshot, interpreter, packages; and a run never fails for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rowlock.cli.curves.compare import changed_packages
from rowlock.cli.source import code_record, snapshot
from rowlock.cli.source.code_record import CodeRecording, find_python, kept_packages


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long for what is asked of git and of the interpreter."""
    monkeypatch.setattr(code_record, "_PATIENCE", 60.0)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "cluster")


def test_a_repository_and_an_interpreter(tmp_path: Path, data: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print(1)\n")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    found = CodeRecording(data, str(project), [sys.executable, "train.py"], os.environ).result()
    assert found["repository"] == str(project) and found["commit"] == "" and "note" not in found
    assert snapshot.SourceStore(data).has(found["snapshot"])
    assert found["python"] == sys.executable and found["pythonVersion"] == sys.version.split()[0]
    packages = kept_packages(data, found)
    assert packages is not None and packages["pytest"] == pytest.__version__
    assert changed_packages(data, found, found) == []


def test_outside_git_and_without_python(tmp_path: Path, data: str) -> None:
    assert CodeRecording(data, str(tmp_path), ["true"], os.environ).result() == {}


def test_what_cannot_be_kept_is_said(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "big.bin").write_bytes(bytes(4096))
    monkeypatch.setattr(snapshot, "SIZE_LIMIT", 1024)
    found = CodeRecording(data, str(tmp_path), ["true"], os.environ).result()
    assert "snapshot" not in found and found["note"].startswith("not all of the code was kept: the source directory")


def test_a_submit_does_not_wait_for_it(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = tmp_path / "ask"
    os.mkfifo(ask)
    monkeypatch.setattr(code_record, "find_repository", lambda directory: ask.read_text() or None)
    monkeypatch.setattr(code_record, "_PATIENCE", 0.0)
    found = CodeRecording(data, str(tmp_path), ["true"], os.environ).result()
    ask.write_text("")  # its thread ends
    assert found == {"note": "the code was not kept: it took too long; the next run keeps it"}


def test_the_interpreter_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "torchrun"
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for first, expected in ((f"#!{sys.executable}", sys.executable), ("#!/bin/sh", None), ("\x7fELF", None)):
        script.write_text(f"{first}\n")
        script.chmod(0o755)
        assert find_python(["torchrun", "train.py"], environ) == expected
    assert find_python([], environ) is None and find_python(["no-such-program"], environ) is None


def test_packages_of_another_machine_are_not_known(data: str) -> None:
    assert kept_packages(data, {"packages": "../../token"}) is None and kept_packages(data, {}) is None
    assert changed_packages(data, {"packages": "aa"}, {"packages": "aa"}) is None
