"""What goes where the archive is full: runs of the project that takes most, its favourites last."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rowlock.archive import database, retention
from rowlock.archive.database import put_log, put_marks, put_pod, put_run, write_all
from rowlock.archive.records import LogRecord, PodRecord, RunRecord
from rowlock.archive.retention import Retention, StoredRun, removal_order, stored_runs

MIB = 1 << 20


def order(*runs: tuple[str, str, int, float | None, bool]) -> list[str]:
    return list(removal_order(StoredRun(*run) for run in runs))


def test_the_earliest_end_goes_first_and_favourites_last() -> None:
    runs = [
        ("b", "a", 1, 2.0, False),
        ("kept", "a", 1, 1.0, True),
        ("a", "a", 1, 1.5, False),
        ("runs", "a", 9, None, False),
    ]
    assert order(*runs) == ["a", "b", "kept"]


def test_the_place_that_takes_most_gives_first_whatever_it_has_marked() -> None:
    """Favourites of one project pushed out all other runs of everybody, and the archive grew beyond its size."""
    large = [(f"large-{n}", "large", 10, 100.0 + n, True) for n in range(3)]
    small = [(f"small-{n}", "small", 4, float(n), False) for n in range(3)]
    assert order(*small, *large)[:3] == ["large-0", "large-1", "small-0"]


def put(connection: sqlite3.Connection, uid: str, place: str, finished: float, *, favourite: bool = False) -> None:
    record = RunRecord(uid, uid, uid, f"runai-{place}", place, place, "PyTorchJob", finished - 1, finished=finished)
    pod = PodRecord(f"{uid}-pod", uid, "p", finished - 1, finished, {})
    log = LogRecord(pod.pod_uid, "main", 0, uid, record.namespace, "p", finished - 1, MIB, MIB, "")
    marks = [put_marks(uid, {"tags": [], "note": "", "favourite": True})] if favourite else []
    write_all(connection, [put_run(record, {"job": {}}), put_pod(pod), put_log(log, b"x" * MIB), *marks])


@pytest.mark.parametrize("favourite", [False, True])
def test_a_project_without_end_leaves_the_runs_of_another_one(tmp_path: Path, favourite: bool) -> None:
    with closing(database.open_database(tmp_path / "archive.db", writes=True)) as connection:
        for number in range(3):
            put(connection, f"small-{number}", "small", float(number))
        for number in range(30):
            put(connection, f"large-{number}", "large", 100.0 + number, favourite=favourite)
        sizes = {run.uid: run.size for run in stored_runs(connection)}
        assert min(sizes.values()) >= MIB and len(sizes) == 33
        removed = retention.cut(
            connection, Retention(size=20 * MIB), 200.0, store=write_all, remove_files=lambda _: None
        )
        left = [uid for (uid,) in connection.execute("SELECT uid FROM runs ORDER BY finished")]
        assert removed == 20 and left[:3] == ["small-0", "small-1", "small-2"] and left[3] == "large-20", left
        assert retention.stored_bytes(connection) <= 20 * MIB
