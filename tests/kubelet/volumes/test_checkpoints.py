"""How long a job's checkpoints stay."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from tests.kubelet.conftest import Node, on_node, pod, until

from rowlock import kinds
from rowlock.api import DeleteOptions, View
from rowlock.controllers.view.state import State
from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import PodSpec, parse_pod_spec
from rowlock.kubelet.volumes.checkpoints import Checkpoints, live_owner_uids, wait_for_writers
from rowlock.objects import Key, dig
from rowlock.workloads.frameworks import RESUME_ANNOTATION, checkpoints_owner

DAY = 86400.0
NOW = 2_000_000_000.0


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The checkpoints of job `j`, written a year ago."""
    directory = tmp_path / "checkpoints" / "j"
    directory.mkdir(parents=True)
    (directory / "epoch-1.pt").write_text("weights")
    for path in (directory / "epoch-1.pt", directory):
        os.utime(path, (NOW - 365 * DAY, NOW - 365 * DAY))
    return directory


def test_the_days_count_from_the_jobs_end_not_from_the_last_write(place: Path, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, 7 * DAY)
    assert kept.remove_expired({"j"}, NOW - 100 * DAY) == [] and kept.remove_expired(set(), NOW) == []
    assert kept.remove_expired(set(), NOW + 6.9 * DAY) == [] and (place / "epoch-1.pt").exists()
    assert kept.remove_expired(set(), NOW + 7.1 * DAY) == ["j"] and not place.exists()
    assert os.listdir(tmp_path / "checkpoints" / ".gone") == []


def test_a_write_or_the_job_itself_starts_the_days_again(place: Path, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, 7 * DAY)
    kept.remove_expired(set(), NOW)
    kept.remove_expired({"j"}, NOW + 6 * DAY)
    assert kept.remove_expired(set(), NOW + 8 * DAY) == [] and kept.remove_expired(set(), NOW + 14 * DAY) == []
    os.utime(place / "epoch-1.pt", (NOW + 14 * DAY, NOW + 14 * DAY))
    assert kept.remove_expired(set(), NOW + 20 * DAY) == [] and kept.remove_expired(set(), NOW + 22 * DAY) == ["j"]


def test_nothing_there_is_nothing_to_do(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path).remove_expired(set(), NOW) == []


def test_a_node_keeps_them_while_the_pod_is_there(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        await node.add(pod("a", "echo 1 > $ROWLOCK_CHECKPOINT_DIR/step; sleep 60"))
        await until(lambda: list(tmp_path.glob("checkpoints/*/step")))
        [step] = tmp_path.glob("checkpoints/*/step")
        await until(lambda: node.pod("a")["status"].get("phase") == "Running")
        assert step.exists() and not (tmp_path / "checkpoints" / ".gone" / step.parent.name).exists()
        await node.delete("a", DeleteOptions(grace=0))
        await until(lambda: not step.exists(), "the checkpoints to go")

    on_node(tmp_path, body, sweep=0.02, keep_checkpoints=0.1)


def test_pods_of_another_namespace_get_nothing_of_a_job(tmp_path: Path) -> None:
    """Who writes the uid of somebody else's job into `ownerReferences` reads his checkpoints otherwise."""

    async def body(node: Node) -> None:
        owner = [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "the-job", "controller": True}]
        mine = pod("mine", "echo weights > $ROWLOCK_CHECKPOINT_DIR/step")
        mine["metadata"]["ownerReferences"] = owner
        await node.add(mine)
        await node.phase("mine", "Succeeded")
        theirs = pod("theirs", "cat $ROWLOCK_CHECKPOINT_DIR/step")
        theirs["metadata"] |= {"ownerReferences": owner, "namespace": "other"}
        await node.add(theirs, bind=False)
        await node.store.bind("other", "theirs", node.name)

        def reason() -> str:
            found = node.store.view.get(kinds.POD, "other", "theirs")
            return str(dig((dig(found, "status.containerStatuses") or [{}])[0], "state.waiting.message"))

        await until(lambda: "a job of another namespace" in reason(), "the pod to be refused")
        again = pod("again", "cat $ROWLOCK_CHECKPOINT_DIR/step")
        again["metadata"]["ownerReferences"] = owner
        await node.add(again)
        await node.phase("again", "Succeeded")

    on_node(tmp_path, body)


def test_a_job_goes_on_in_the_directory_of_another_of_its_namespace(tmp_path: Path) -> None:
    def made(owner: str, namespace: str, resumed: str = "") -> PodSpec:
        meta = {
            "name": "p",
            "namespace": namespace,
            "uid": f"pod-of-{owner}",
            "annotations": {RESUME_ANNOTATION: resumed} if resumed else {},
            "ownerReferences": [{"controller": True, "uid": owner, "kind": "PyTorchJob", "name": "j"}],
        }
        return parse_pod_spec({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})

    kept = Checkpoints(tmp_path)
    first = kept.directory_for(made("one", "team-a"))
    assert kept.directory_for(made("two", "team-a")) != first
    assert kept.directory_for(made("three", "team-a", "one")) == first
    with pytest.raises(ContainerConfigError, match="a job of another namespace"):
        kept.directory_for(made("four", "team-b", "one"))
    for name, words in (("gone", "no checkpoints of a job gone here"), ("../one", "the uid of the pod's owner")):
        with pytest.raises(ContainerConfigError, match=words):
            kept.directory_for(made("five", "team-a", name))


def test_a_namespace_that_a_killed_server_has_not_written_is_written(tmp_path: Path) -> None:
    def made(namespace: str) -> PodSpec:
        meta = {"name": "p", "namespace": namespace, "uid": "one"}
        return parse_pod_spec({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})

    mark = tmp_path / "checkpoints" / ".namespaces" / "one"
    mark.parent.mkdir(parents=True)
    mark.touch()
    kept = Checkpoints(tmp_path)
    assert kept.directory_for(made("team-a")).is_dir() and mark.read_text() == "team-a"
    with pytest.raises(ContainerConfigError, match="a job of another namespace"):
        kept.directory_for(made("team-b"))


def _pod_of(job: str, namespace: str) -> PodSpec:
    owners = [{"controller": True, "uid": job, "kind": "PyTorchJob", "name": job}]
    meta = {"name": "p", "namespace": namespace, "uid": f"pod-of-{job}", "ownerReferences": owners}
    return parse_pod_spec({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})


@pytest.mark.parametrize("refusal", [None, errno.EPERM, errno.EMLINK])
def test_every_job_has_the_mark_of_its_namespace(
    tmp_path: Path, refusal: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a file cannot have another name, and for a server that begins where another one was killed."""
    marks, kept = tmp_path / "checkpoints" / ".namespaces", Checkpoints(tmp_path)
    kept.directory_for(_pod_of("first", "team-a"))
    (marks / ".names" / "team-a.new").write_text("te")

    def refuse(*_: object) -> None:
        raise OSError(refusal, "no")

    if refusal:
        monkeypatch.setattr(os, "link", refuse)
    again = Checkpoints(tmp_path)
    for job, namespace in (("a1", "team-a"), ("b1", "team-b"), ("a2", "team-a")):
        again.directory_for(_pod_of(job, namespace))
        assert (marks / job).read_text() == namespace
    for job, namespace in (("a1", "team-b"), ("b1", "team-a")):
        with pytest.raises(ContainerConfigError, match="a job of another namespace"):
            again.directory_for(_pod_of(job, namespace))
    if not refusal:
        assert (marks / "a1").samefile(marks / "a2"), "one file for all jobs of a namespace"
    assert stat.S_IMODE(marks.stat().st_mode) == 0o700 and not (marks / ".names" / "team-a.new").exists()
    shutil.rmtree(marks)  # somebody tidied up under a running server
    again.directory_for(_pod_of("a3", "team-a"))
    assert (marks / "a3").read_text() == "team-a"


def test_checkpoints_stay_while_another_job_goes_on_from_them(tmp_path: Path) -> None:
    template = {"metadata": {"annotations": {RESUME_ANNOTATION: "an-old-job"}}}
    job = {
        "metadata": {"name": "j", "namespace": "n", "uid": "new"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": template}}},
    }
    assert checkpoints_owner(job) == "an-old-job" and checkpoints_owner({"metadata": {"uid": "x"}}) == "x"
    assert checkpoints_owner({"metadata": {"uid": "x"}, "spec": {"pytorchReplicaSpecs": {"Master": None}}}) == "x"
    view, key = State(), Key("n", "j")
    view.load(kinds.PYTORCHJOB, key, msgspec.json.encode(job))
    resuming = {
        "uid": "p",
        "annotations": {RESUME_ANNOTATION: "older"},
        "ownerReferences": [{"uid": "gone", "controller": True}],
    }
    pod = {"metadata": {"name": "j", "namespace": "n", **resuming}, "status": {"phase": "Succeeded"}}
    view.load(kinds.POD, key, msgspec.json.encode(pod))
    assert {"new", "an-old-job", "p", "older", "gone"} <= asyncio.run(live_owner_uids(view))


def _resuming_job(name: str, created: str, **spec: object) -> dict[str, object]:
    template = {"metadata": {"annotations": {RESUME_ANNOTATION: "first"}}}
    meta = {"name": name, "namespace": "n", "uid": name, "creationTimestamp": created}
    return {"metadata": meta, "spec": {"pytorchReplicaSpecs": {"Master": {"template": template}}, **spec}}


def test_of_two_jobs_that_go_on_from_one_run_the_later_waits(tmp_path: Path) -> None:
    early, late = _resuming_job("early", "2026-01-01T00:00:00Z"), _resuming_job("late", "2026-01-01T00:00:01Z")
    running: dict[str, str] = {}

    def pod_of(job: str) -> PodSpec:
        owners = [{"controller": True, "uid": job, "kind": "PyTorchJob", "name": job}]
        notes = {RESUME_ANNOTATION: "first"}
        meta = {"name": "p", "namespace": "n", "uid": "u", "annotations": notes, "ownerReferences": owners}
        return parse_pod_spec({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})

    def view_of(*jobs: object) -> View:
        return cast(
            View,
            SimpleNamespace(
                all=lambda kind, namespace="": list(jobs) if kind is kinds.PYTORCHJOB else [],
                by_owner=lambda kind, uid: [{"status": {"phase": running.get(uid, "Pending")}}],
            ),
        )

    wait_for_writers(pod_of("early"), view_of(early, late))
    with pytest.raises(ContainerConfigError, match=r"early \(early\) writes now.*`rowlock suspend early`"):
        wait_for_writers(pod_of("late"), view_of(early, late))
    wait_for_writers(
        pod_of("late"), view_of(_resuming_job("early", "2026-01-01T00:00:00Z", runPolicy={"suspend": True}), late)
    )
    over = {**early, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    wait_for_writers(pod_of("late"), view_of(over, late))
    running["late"] = "Running"  # it began while the earlier one was suspended, or not there yet
    with pytest.raises(ContainerConfigError, match="late"):
        wait_for_writers(pod_of("early"), view_of(early, late))


def test_a_namespace_with_the_name_of_a_deleted_one_gets_none_of_its_checkpoints(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    first = kept.directory_for(_pod_of("old", "team-a"), "uid-of-the-first")
    assert kept.directory_for(_pod_of("old", "team-a"), "uid-of-the-first") == first
    for server in (kept, Checkpoints(tmp_path)):
        with pytest.raises(ContainerConfigError, match="of an earlier namespace team-a, which was deleted"):
            server.directory_for(_pod_of("old", "team-a"), "uid-of-the-second")
        meta = {"name": "p", "namespace": "team-a", "uid": "new", "annotations": {RESUME_ANNOTATION: "old"}}
        resuming = parse_pod_spec({"metadata": meta, "spec": {"containers": [{"name": "c"}]}})
        with pytest.raises(ContainerConfigError, match="of an earlier namespace team-a"):
            server.directory_for(resuming, "uid-of-the-second")
        assert server.directory_for(resuming, "uid-of-the-first") == first
    kept.directory_for(_pod_of("new", "team-a"), "uid-of-the-second")
    kept.remove_expired(set(), NOW)
    assert sorted(kept.remove_expired(set(), NOW + 30 * DAY)) == ["new", "old"]
    assert {entry.name for entry in (tmp_path / "checkpoints" / ".namespaces").iterdir()} == {".names", ".uids"}
    assert [entry.name for entry in (tmp_path / "checkpoints" / ".namespaces" / ".uids").iterdir()] == [".names"]


def test_a_volume_above_the_data_directory_hides_nothing_that_a_program_needs(tmp_path: Path) -> None:
    """A volume at a home, or at /tmp, where the data directory is below it: the program begins in the volume, and has its
    checkpoints and its file for errors at places of their own."""
    above = str(tmp_path.parent)
    script = 'pwd; ls; touch mine; echo step > "$ROWLOCK_CHECKPOINT_DIR/last"; echo "{}" > "$TORCHELASTIC_ERROR_FILE" && echo written'

    async def body(node: Node) -> None:
        if why := node.kubelet.node.mount_problem:
            pytest.skip(f"containers cannot have mounts of their own here: {why}")
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "j", "uid": "j", "controller": True}
        container = {"volumeMounts": [{"name": "home", "mountPath": above}]}
        spec = {"volumes": [{"name": "home", "emptyDir": {}}]}
        await node.add(pod("a", script, container=container, spec=spec, ownerReferences=[owner]))
        await node.ended("a")
        assert await node.log("a") == f"{above}\nwritten\n"
        uid = node.pod("a")["metadata"]["uid"]
        assert (tmp_path / "pods" / uid / ".volumes" / "home" / "mine").exists()
        assert (tmp_path / "checkpoints" / "j" / "last").read_text() == "step\n"

    on_node(tmp_path, body)
