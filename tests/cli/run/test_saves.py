"""`rowlock run --rerun-on-save`: which files are watched, and what follows a save, a refusal, an end and Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rowlock.cli import output
from rowlock.cli.client import ServerClient
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.run import saves
from rowlock.cli.run.console import PIPED, Console
from rowlock.cli.run.request import HOST_IMAGE
from rowlock.cli.run.saves import SourceFiles


@pytest.fixture(params=["git", "no repository"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    for inner in ("pkg", "outputs", ".hidden", "env/lib"):
        (directory / inner).mkdir(parents=True)
    (directory / "env" / "pyvenv.cfg").touch()
    for name in ("train.py", "pkg/model.py", "conf.yaml", "state.json", "env/lib/a.py", ".hidden/b.py"):
        (directory / name).write_text("1")
    if request.param == "git":
        (directory / ".gitignore").write_text("env\n.hidden\n")
        subprocess.run(["git", "init", "-q", str(directory)], check=True)
    return directory


def replace_by_name(path: Path) -> None:
    """As editors do: the old file is put away, the new one comes into its place."""
    path.rename(f"{path}~")
    Path(f"{path}.new").write_text("2")
    Path(f"{path}.new").rename(path)


@pytest.mark.parametrize(
    ("save", "changed"),
    [
        (lambda d: (d / "train.py").write_text("2"), ["train.py"]),
        (lambda d: replace_by_name(d / "pkg/model.py"), ["pkg/model.py"]),
        (lambda d: (d / "conf.yaml").unlink(), ["conf.yaml"]),
        (lambda d: (d / "pkg/new.py").write_text("2"), ["pkg/new.py"]),
        (lambda d: os.utime(d / "train.py", ns=(1, 1)), ["train.py"]),
    ],
    ids=["written", "replaced", "removed", "added", "touched"],
)
def test_a_save_is_noticed(project: Path, save: Callable[[Path], Any], changed: list[str]) -> None:
    files = SourceFiles(str(project))
    save(project)
    assert files.wait_change() == changed


def test_a_program_may_write_what_it_likes(project: Path) -> None:
    """Checkpoints, metrics, a configuration in a directory of its own: none of it is source."""
    files, looks = SourceFiles(str(project)), iter([False] * 3 + [True])
    (project / "outputs" / "config.yaml").write_text("2")
    for name in ("state.json", "model.pt", "metrics.csv", "env/lib/a.py", ".hidden/b.py", "outputs/log.txt"):
        (project / name).write_text("22")
    assert files.wait_change(lambda _: next(looks)) == []
    (project / "train.py").write_text("22")
    assert files.wait_change() == ["train.py"]


def test_a_file_that_the_command_names_is_watched_whatever_it_is(project: Path) -> None:
    files = SourceFiles(str(project), ["python", "train.py", "state.json"], str(project))
    (project / "state.json").write_text("22")
    assert files.wait_change() == ["state.json"]


def test_a_file_that_is_being_written_is_waited_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save of several files is one save."""
    files = SourceFiles(str(project))
    later = iter(["train.py", "conf.yaml"])
    monkeypatch.setattr(
        time, "sleep", lambda _: [(project / name).write_text("22") for name in [next(later, "")] if name]
    )
    assert files.wait_change() == ["conf.yaml", "train.py"]


def test_a_file_that_grows_is_waited_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that comes over a network: half of it is no program."""
    files, (file, sizes) = SourceFiles(str(project)), (project / "train.py", iter(range(2, 9)))
    monkeypatch.setattr(time, "sleep", lambda _: file.write_text("x" * next(sizes, 8)))
    assert files.wait_change() == ["train.py"]
    assert file.stat().st_size == 8


def test_a_run_that_ends_does_not_wait_for_the_next_look(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where looks take long, as over a network, they are seldom."""
    files, over = SourceFiles(str(project)), threading.Event()
    monkeypatch.setattr(saves, "INTERVAL", 3600.0)
    watching = threading.Thread(target=files.wait_change, args=(over.wait,), daemon=True)
    watching.start()
    over.set()
    watching.join(200)
    assert not watching.is_alive()


def test_a_directory_with_too_many_files_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saves, "MAX_FILES", 2)
    with pytest.raises(CommandError, match=r"source files below .*project, and at most 2 are watched"):
        SourceFiles(str(project))


# ---------------------------------------------------------------- the runs


class Server(ServerClient):
    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "")
        self.deleted = threading.Event()


def line_of(directory: Path, **values: Any) -> CommandLine:
    line = CommandLine("rowlock", "run", [])
    flags: dict[str, Any] = {
        "source": "",
        "working_dir": str(directory),
        "image": HOST_IMAGE,
        "env": [],
        "debug_rank": None,
        "name": "",
        "replace": False,
    }
    line.set_values(**flags, detach=False, rm=False, tty=False)
    line.set_values(**values)
    return line


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(
        saves, "ServerClient", lambda *_: type("Own", (), {"delete": lambda *_, **__: made.deleted.set()})()
    )
    return made


def test_a_save_stops_the_run_and_starts_the_next(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run is edited while it works, the second is refused and edited, the third ends and is edited, the fourth is
    interrupted."""
    script, submitted = tmp_path / "train.py", list[tuple[str, bool]]()
    script.write_text("1")
    line = line_of(tmp_path)

    def follow_run(*_: Any, on_interrupt: Callable[[], None]) -> int:
        if len(submitted) == 1:
            script.write_text("the second, which is wrong")
            assert server.deleted.wait(200)
        elif len(submitted) == 3:
            return 7
        else:
            on_interrupt()
            script.write_text("not of interest any more")
        return 130

    def start(follow: Callable[..., int]) -> int:
        submitted.append((line.name, line.replace))
        if len(submitted) == 2:
            raise CommandError("--source is too large")
        return follow(line, server, "train-0", "id", Console())

    def tell_and_save(text: str) -> None:
        output.tell(text)
        if text.startswith("Waiting"):
            script.write_text(f"after {text}" * len(submitted))

    monkeypatch.setattr(saves, "follow_run", follow_run)
    monkeypatch.setattr(saves, "tell", tell_and_save)
    assert saves.run_on_save(line, ["python", "train.py"], start) == 130
    assert submitted == [("", False), *[("train-0", True)] * 3]
    said = capsys.readouterr().err
    assert said.count("Saved: train.py") == 3 and "Job train-0 is stopped, and runs again." in said
    assert "--source is too large. Nothing was submitted." in said
    assert said.count("Waiting until one of 1 source files in") == 2


def test_ctrl_c_ends_the_waiting(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(saves, "follow_run", lambda *_, **__: 3)
    monkeypatch.setattr(SourceFiles, "wait_change", lambda _, is_over=None: [] if is_over else interrupt())
    line = line_of(tmp_path)
    assert saves.run_on_save(line, [], lambda follow: follow(line, server, "j", "id", Console())) == 3


def test_the_first_submit_may_be_refused(tmp_path: Path) -> None:
    def refuse(_: Any) -> int:
        raise CommandError("no such project")

    with pytest.raises(CommandError, match="no such project"):
        saves.run_on_save(line_of(tmp_path), [], refuse)


def test_what_ends_while_it_is_submitted_is_not_started_again(tmp_path: Path) -> None:
    """Ctrl-C before there is a job."""
    assert saves.run_on_save(line_of(tmp_path), [], lambda _: 130) == 130


@pytest.mark.parametrize(
    ("flags", "kind", "sentence"),
    [
        ({"detach": True}, "", "leave --detach out"),
        ({"rm": True}, "", "leave --rm out"),
        ({"tty": True}, "", "leave --tty out"),
        ({"debug_rank": 1}, "", "leave --debug out"),
        ({"image": "torch"}, "", "Leave --image out"),
        ({}, PIPED, "what is piped in can be read once"),
    ],
)
def test_flags_that_do_not_go_with_it(tmp_path: Path, flags: dict[str, Any], kind: str, sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        saves.check(line_of(tmp_path, **flags), Console(kind))
