"""`rowlock scheduler replay`: a snapshot's decisions, without a server."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rowlock.scheduling.model.snapshot import Gang, Node, PodSet, Queue, Shape, Snapshot, Status, Task, dumps, loads
from rowlock.simulator.replay import main

GB = 10**9


def gang(name: str, pods: int, queue: str = "a", node: str = "", created: float = 100.0) -> Gang:
    status = Status.RUNNING if node else Status.PENDING
    tasks = tuple(
        Task(f"{name}-{i}", "t", f"{name}-{i}", Shape(gpus=1), status, node=node, devices=(i,) if node else ())
        for i in range(pods)
    )
    return Gang("t", name, name, queue, tasks, (PodSet("", pods),), created=created, started=created if node else 0.0)


def snapshot() -> Snapshot:
    """b takes two cards back from a, on a full node; a larger gang of b must wait."""
    queues = (Queue("a", quota=(-1, -1, 200)), Queue("b", quota=(-1, -1, 200), created=1.0))
    gangs = (gang("old", 2, node="n1"), replace(gang("new", 2, created=500.0), queue="b"), gang("wide", 9, "b"))
    more = replace(gang("more", 2, node="n1", created=300.0))
    more = replace(more, tasks=tuple(replace(t, devices=(i + 2,)) for i, t in enumerate(more.tasks)))
    return Snapshot(1000.0, (Node("n1", cpu=8000, memory=GB, gpus=4),), queues, (*gangs, more))


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    path = tmp_path / "s.json"
    path.write_bytes(dumps(snapshot()))
    assert main([*argv, str(path)]) == 0
    return capsys.readouterr().out


def test_every_decision_has_its_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(tmp_path, capsys).splitlines()
    assert lines[0].startswith("evict  Pod t/more-0 was preempted by workload t/new. a uses 4 GPUs with a quota of 2,")
    assert any(x.startswith("hold   t/wide: ") and "What helps: " in x for x in lines)
    assert any(x.startswith("hold   t/new: WaitingForRelease: Room is promised") for x in lines)
    assert lines[-1] == "0 binds, 2 evictions, 2 holds."


def test_the_same_snapshot_gives_the_same_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(tmp_path, capsys, "--json")
    assert first == run(tmp_path, capsys, "--json")
    found = json.loads(first)
    assert [f["decision"] for f in found] == ["evict", "evict", "hold", "hold"]
    assert found[0]["act"] == "reclaim" and found[0]["for"] == "t/new"


def test_what_is_no_snapshot_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("", "nodes: 3", '{"now": "soon"}', "[]", '{"now": 1, "nodes": [{"name": 3}]}'):
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(SystemExit) as stopped:
            main(["--program", "rowlock scheduler replay", str(path)])
        assert stopped.value.code == 1
        err = capsys.readouterr().err
        assert err.startswith("rowlock scheduler replay: ") and "is not a snapshot" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"settings": {"actions": ["dance"]}}, "there is no action `dance`; there are allocate, consolidate, "),
        ({"settings": {"gpu": "tight"}}, "must be pack or spread - at `$.settings.gpu`"),
        ({"nodes": [{"name": "n", "gpus": -5}]}, "must be no less than 0 - at `$.nodes[0].gpus`"),
        ({"nodes": [{"name": "n"}, {"name": "n"}]}, "`n` is there twice - at `$.nodes`"),
        ({"nodez": []}, "Unknown field `nodez` - at `$`"),
        ({"nodes": [{"name": "n", "gpu": 4}]}, "Unknown field `gpu` - at `$.nodes[0]`"),
    ],
)
def test_what_a_snapshot_cannot_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"now": 1, **change}))
    with pytest.raises(SystemExit) as stopped:
        main([str(path)])
    assert stopped.value.code == 1 and sentence in capsys.readouterr().err


def test_a_portion_above_a_card_is_refused() -> None:
    wrong = replace(gang("g", 1), tasks=(Task("u", "t", "p", Shape(portion=150, devices=1)),))
    with pytest.raises(msgspec.ValidationError, match=r"a portion above 100 - at `\$\.gangs\[0\]\.tasks\[0\]`"):
        loads(dumps(replace(snapshot(), gangs=(wrong,))))


def test_through_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(dumps(snapshot()))
    rowlock = str(Path(sys.executable).parent / "rowlock")
    done = subprocess.run([rowlock, "scheduler", "replay", str(path)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and done.stdout.endswith("0 binds, 2 evictions, 2 holds.\n"), done.stderr
    done = subprocess.run([rowlock, "scheduler", "replay", "nowhere"], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "rowlock scheduler replay: nowhere cannot be read: No such file or directory\n"
