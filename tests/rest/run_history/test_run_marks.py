"""What people write on runs: at a submit and later, while the job is there and when it is gone; found again, and kept."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.rest.conftest import World, submission
from tests.rest.run_history.test_past_runs import remove, submit

from rowlock import kinds
from rowlock.archive import database, retention
from rowlock.archive.database import put_marks, put_run, write_all
from rowlock.archive.records import RunRecord
from rowlock.archive.retention import Retention

RUNS = "/api/v1/runs"


def runs(world: World, **query: str) -> list[dict[str, Any]]:
    answer = world.client.get(RUNS, params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["runs"]
    return found


def change(world: World, identity: str, **body: Any) -> dict[str, Any]:
    answer = world.client.patch(f"{RUNS}/{identity}", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_marks_come_with_a_submit(world: World) -> None:
    world.project()
    body = submission(numWorkers=1) | {"tags": ["paper", "v2"], "note": "with Dropout"}
    answer = world.client.post("/api/v1/workloads/distributed", json=body)
    assert answer.status_code == 202, answer.text
    (run,) = runs(world)
    assert (run["tags"], run["note"], run["favourite"]) == (["paper", "v2"], "with Dropout", False)
    assert runs(world, tag="paper") == runs(world, search="dropout") == runs(world, search="APE") == [run]
    assert runs(world, tag="pap") == runs(world, search="favour") == runs(world, favourite="true") == []
    assert world.client.get(f"{RUNS}/{run['id']}").json()["tags"] == ["paper", "v2"]


def test_marks_are_changed_while_the_job_is_there_and_when_it_is_gone(world: World) -> None:
    identity, job = submit(world)
    assert change(world, identity, tags=["a"], note="first")["note"] == "first"
    there = world.store.view.get(kinds.PYTORCHJOB, job["metadata"]["namespace"], job["metadata"]["name"])
    assert there is not None and there["metadata"]["annotations"]["rowlock.dev/tags"] == "a"
    remove(world, identity, job)
    assert runs(world, tag="a")[0]["deletedAt"]
    changed = change(world, identity, tags=["b"], favourite=True)
    assert (changed["tags"], changed["note"], changed["favourite"]) == (["b"], "first", True)
    assert runs(world, tag="a") == []
    assert [run["id"] for run in runs(world, tag="b", favourite="true", search="FIRST")] == [identity]


def test_bad_marks_change_nothing(world: World) -> None:
    identity, job = submit(world)
    for body, sentence in (
        ({"tags": ["a b"]}, "is no tag"), ({"tagz": []}, 'Did you mean \\"tags\\"?'), ([], "must be a JSON object"),
    ):  # fmt: skip
        for _ in range(2):
            answer = world.client.patch(f"{RUNS}/{identity}", json=body)
            assert answer.status_code == 400 and sentence in answer.text, answer.text
    remove(world, identity, job)
    assert world.client.patch(f"{RUNS}/{identity}", json={"tags": ["a b"]}).status_code == 400
    assert world.client.patch(f"{RUNS}/nosuch", json={"tags": []}).status_code == 404
    assert runs(world)[0]["tags"] == []


def test_a_search_for_any_text_is_one(world: World) -> None:
    submit(world)
    for text in ("'", '"', "%", "*", "]", "tags", "note", "{", "é"):
        assert runs(world, search=text) == [] and runs(world, tag=text) == []


def put(connection: sqlite3.Connection, uid: str, finished: float, **marks: Any) -> None:
    record = RunRecord(uid, uid, uid, "ns", "n", "p", "PyTorchJob", finished - 1, finished=finished)
    write_all(connection, [put_run(record, {"job": {}}), *([put_marks(uid, marks)] if marks else [])])


def test_favourites_stay_beyond_the_retention(tmp_path: Path) -> None:
    with closing(database.open_database(tmp_path / "archive.db", writes=True)) as connection:
        put(connection, "old", 100.0)
        put(connection, "tagged", 100.0, tags=["a"], note="", favourite=False)
        put(connection, "kept", 100.0, tags=[], note="", favourite=True)
        put(connection, "new", 5000.0)

        def cut(keep: Retention) -> int:
            return retention.cut(connection, keep, 5000.0, store=write_all, remove_files=lambda _: None)

        assert cut(Retention(age=1000.0)) == 2
        assert sorted(uid for (uid,) in connection.execute("SELECT uid FROM runs")) == ["kept", "new"]
        assert database.read_marks(connection, ["old", "tagged"]) == {"tagged": {}}, (
            "what was written on it has gone with it"
        )
        assert cut(Retention(age=1.0)) == 0
        assert list(database.read_notes(connection)) == [retention.CUT_NOTE]
