"""GET /runs/{id}/curves has the scalars of TensorBoard's event files beside what was printed, also of a deleted run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.curves.test_event_records import WRITTEN
from tests.rest.conftest import World
from tests.rest.run_history.test_past_runs import NAMESPACE, get, give_pod, remove, submit, wait

from rowlock import objects
from rowlock.archive.records import PodRecord, RunRecord
from rowlock.controllers.turn_budget import FairTurns
from rowlock.curves.event_records import RunPlaces
from rowlock.diagnostics.event_files import EventFiles
from rowlock.kubelet.volumes.checkpoints import OwnerMarks
from rowlock.rest.run_history.event_files import places_of
from rowlock.rest.run_history.past_workloads import PastRun


def curves(world: World, run: str, **query: int) -> dict[str, list[list[float]]]:
    return {one["metric"]: one["points"] for one in get(world, f"/api/v1/runs/{run}/curves", **query)["curves"]}


def write(directory: Path, name: str) -> None:
    directory.mkdir(parents=True)
    (directory / name).write_bytes(WRITTEN)


def test_scalars_are_curves_beside_what_was_printed(world: World, tmp_path: Path) -> None:
    identity, job = submit(world)
    give_pod(world, job)
    pod = f"{objects.name(job)}-worker-0"
    world.logs[pod] = [b"2026-01-02T03:04:05.000000000Z step=1 acc=0.5\n"]
    OwnerMarks(tmp_path / "checkpoints" / ".namespaces").note(objects.uid(job), NAMESPACE)
    write(tmp_path / "checkpoints" / objects.uid(job), "events.out.tfevents.1.host")
    both = {"train/loss": [[1.0, 0.5], [2.0, 0.25]], "acc": [[1.0, 0.5]]}
    wait(lambda: curves(world, identity) == both)
    assert curves(world, identity, points=1)["train/loss"] == [[2.0, 0.25]]
    assert list(curves(world, identity, rank=1)) == ["acc"], "event files are the run's, not a rank's"
    (file,) = get(world, f"/api/v1/runs/{identity}/event-files")["files"]
    assert file["path"].endswith(f"{objects.uid(job)}/events.out.tfevents.1.host") and file["place"] == "."
    remove(world, identity, job, pod)
    assert curves(world, identity)["train/loss"] == both["train/loss"]


def test_searches_take_the_turns_of_their_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks again and again has one search at a time, by each of the two routes."""
    identity, job = submit(world)
    give_pod(world, job)
    wait(lambda: world.client.get(f"/api/v1/runs/{identity}").status_code == 200)
    held, searched = list[str](), list[tuple[str, ...]]()
    take, find = FairTurns.take, EventFiles._find

    @asynccontextmanager
    async def note(turns: FairTurns, name: str) -> AsyncIterator[None]:
        async with take(turns, name):
            held.append(name)
            yield
            held.remove(name)

    def search(files: EventFiles, run: RunPlaces) -> Any:
        searched.append(tuple(held))
        return find(files, run)

    monkeypatch.setattr(FairTurns, "take", note)
    monkeypatch.setattr(EventFiles, "_find", search)
    get(world, f"/api/v1/runs/{identity}/event-files")
    get(world, f"/api/v1/runs/{identity}/curves")
    assert searched == [("ana",), ("ana",)]


def test_directories_and_users_are_those_of_the_pods() -> None:
    def pod(name: str, spec: dict[str, Any], **container: Any) -> PodRecord:
        body = {
            "metadata": {"name": name},
            "spec": {**spec, "containers": [{"name": "c", **container}, {"name": "side"}]},
        }
        return PodRecord(f"uid of {name}", "uid-1", name, 1.0, None, body)

    job = {"kind": "PyTorchJob", "metadata": {"name": "fit", "namespace": "a", "uid": "uid-1"}, "spec": {}}
    record = RunRecord("uid-1", "id", "fit", "a", "ns", "team-a", "PyTorchJob", 5.0, body={"job": job})
    pods = [
        pod("fit-master-0", {}, workingDir="/w/."),
        pod("fit-worker-0", {"securityContext": {"runAsUser": 7}}, workingDir="/w"),
        pod(
            "fit-worker-1",
            {"securityContext": {"runAsUser": 7}},
            workingDir="$(HOME)",
            securityContext={"runAsUser": 8},
        ),
    ]
    places = places_of(PastRun(record, pods))
    assert places.directories == ("/w",) and places.users == {None, 7, 8}
    assert list(places.pods.values()) == ["fit-master-0", "fit-worker-0", "fit-worker-1"]
    assert (places.checkpoints, places.namespace_uid, places.began, places.ended) == ("uid-1", "ns", 5.0, None)
