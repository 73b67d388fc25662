"""Which event files are a run's, and that no answer tells what its programs could not read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.curves.test_event_records import WRITTEN, event, record

from rowlock.curves.event_records import ReadingBudget, RunPlaces
from rowlock.diagnostics import event_files
from rowlock.diagnostics.event_files import EventFiles
from rowlock.kubelet.volumes.checkpoints import OwnerMarks


def write(path: Path, *records: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(records) or WRITTEN)
    return str(path)


def run_of(*directories: Path, **more: Any) -> RunPlaces:
    places = RunPlaces(
        uid="uid-1", namespace="team-a", namespace_uid="ns-1", checkpoints="uid-1",
        directories=tuple(map(str, directories)), pods={"pod-1": "fit-master-0"}, users=frozenset({None}), began=1000.0, ended=2000.0,
    )  # fmt: skip
    return replace(places, **more)


def mark(data: Path, uid: str, namespace: str) -> None:
    data.mkdir(exist_ok=True)
    OwnerMarks(data / "checkpoints" / ".namespaces").note(uid, namespace)


def test_a_file_of_another_run_in_the_same_directory_is_not_taken(tmp_path: Path) -> None:
    work, data = tmp_path / "work", tmp_path / "data"
    mark(data, "uid-1", "team-a")
    mine = [
        write(data / "checkpoints" / "uid-1" / "tb" / "events.out.tfevents.5.host"),
        write(data / "pods" / "pod-1" / ".work" / "runs" / "events.out.tfevents.6.host"),
        write(work / "runs" / "events.out.tfevents.1500.fit-master-0"),
        write(work / "runs" / "events.out.tfevents.1600.my-laptop.7.v2"),
    ]
    write(work / "runs" / "events.out.tfevents.900.my-laptop")
    write(work / "runs" / "events.out.tfevents.900.fit-master-0")
    write(work / "runs" / "events.out.tfevents.1500.other-worker-1")
    write(work / "runs" / "events.out.tfevents.3000.my-laptop")
    write(work / ".git" / "events.out.tfevents.1500.my-laptop")
    (work / "loop").symlink_to(work)
    files = EventFiles(data)
    assert [file.path for file in files.find(run_of(work))] == mine
    assert len(files.find(run_of(work, ended=None))) == 5, "it may still write"


def test_curves_are_read_and_what_is_too_much_is_said(tmp_path: Path) -> None:
    write(tmp_path / "a" / "events.out.tfevents.1500.h", *(record(event(b"loss", 1.0, n)) for n in range(1, 9)))
    write(tmp_path / "a" / "events.out.tfevents.1501.h", record(event(b"lr", 0.5)))
    files = EventFiles(tmp_path / "data")
    curves, notes = files.read(run_of(tmp_path))
    assert [len(curves[name].points) for name in ("loss", "lr")] == [8, 1] and notes == []
    curves, notes = files.read(run_of(tmp_path), ReadingBudget(records=4))
    assert [len(curves[name].points) for name in ("loss", "lr")] == [3, 1], "the newest file is read first"
    assert "the oldest are left out" in notes[0]


def test_a_run_of_many_directories_is_not_searched_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod has a directory of its own; the limit is for all of them."""
    monkeypatch.setattr(event_files, "_MAX_ENTRIES", 10)
    monkeypatch.setattr(event_files, "_MAX_SEARCHED", 50)
    pods = {f"pod-{number}": f"fit-worker-{number}" for number in range(100)}
    for uid in pods:
        for number in range(30):
            write(tmp_path / "pods" / uid / ".work" / f"events.out.tfevents.{number}.h")
    looked = list[str]()
    scan = event_files._entries

    def count(top: int, directory: str, most: int) -> list[tuple[str, bool, bool]]:
        entries = scan(top, directory, most)
        looked.extend(name for name, _, _ in entries)
        return entries

    monkeypatch.setattr(event_files, "_entries", count)
    assert EventFiles(tmp_path).find(run_of(pods=pods))
    assert len(looked) <= 50


def test_the_checkpoints_of_another_namespace_are_not_read(tmp_path: Path) -> None:
    """A manifest may name any job to resume: its pods are refused, and so is this."""
    write(tmp_path / "checkpoints" / "theirs" / "events.out.tfevents.1500.h")
    files, run = EventFiles(tmp_path), run_of(checkpoints="theirs")
    assert files.find(run) == []
    mark(tmp_path, "theirs", "team-b")
    assert files.find(run) == []
    assert len(files.find(replace(run, namespace="team-b"))) == 1
    OwnerMarks(tmp_path / "checkpoints" / ".namespaces" / ".uids").note("theirs", "an earlier namespace")
    assert files.find(replace(run, namespace="team-b")) == []
    assert files.find(run_of(checkpoints="../theirs", pods={"../../etc": "fit"})) == []


def test_a_file_of_another_user_is_read_in_own_directories_only(tmp_path: Path) -> None:
    write(tmp_path / "work" / "events.out.tfevents.1500.h")
    owner = os.geteuid()
    for euid, users, is_read in (
        (owner, (None,), True),
        (owner + 1, (None,), False),
        (0, (owner + 1,), False),
        (0, (owner + 1, owner), True),
    ):
        run = run_of(tmp_path / "work", users=frozenset(users))
        assert bool(EventFiles(tmp_path / "data", euid).read(run)[0]) == is_read, (euid, users)
        assert bool(EventFiles(tmp_path / "data", euid).find(run)) == is_read, "nor is it named"
    mark(tmp_path, "uid-1", "team-a")
    write(tmp_path / "checkpoints" / "uid-1" / "events.out.tfevents.1500.h")
    assert EventFiles(tmp_path, owner + 1).read(run_of())[0]


def test_what_is_no_file_is_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    files, run = EventFiles(tmp_path / "data"), run_of(tmp_path / "work")
    real = write(tmp_path / "elsewhere" / "events.out.tfevents.1500.h")
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "work" / "events.out.tfevents.1500.fifo")
    (tmp_path / "work" / "events.out.tfevents.1500.link").symlink_to(real)
    (tmp_path / "work" / "below").symlink_to(tmp_path / "elsewhere")
    assert files.find(run) == [] and files.read(run) == ({}, [])


def test_a_directory_that_becomes_a_link_leads_nowhere(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "events.out.tfevents.1500.h")
    write(tmp_path / "work" / "below" / "events.out.tfevents.1500.h")
    files, run = EventFiles(tmp_path / "data"), run_of(tmp_path / "work")
    (found,) = files._find(run)
    (tmp_path / "work" / "below").rename(tmp_path / "work" / "away")
    (tmp_path / "work" / "below").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"link|directory"), files._open(found, run):
        pass
