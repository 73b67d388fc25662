"""Reclaim: a job that runs beyond its project's quota yields to a project within its own, waits, and goes on by itself.

The jobs have restartPolicy Never, whose pods a real cluster with KAI leaves Failed for ever. Once on pretend nodes,
where nothing runs, and once with the kubelet and programs that end badly when they are told to stop.
"""

from __future__ import annotations

from typing import Any

from tests.end_to_end.cluster import Cluster

from rowlock.objects import seconds

JOBS = "/apis/kubeflow.org/v1/namespaces/runai-{}/pytorchjobs"
GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/runai-{}/podgroups"
PODS = "/api/v1/namespaces/runai-{}/pods"
BADLY = "trap 'echo stopped; exit 3' TERM; echo began; while [ ! -e {stop} ]; do sleep 0.05; done"
"""Ends well when the file is there, with code 3 when it is told to stop."""


def job(name: str, workers: int, script: str, **annotations: str) -> Any:
    container = {
        "name": "pytorch",
        "image": "rowlock.dev/host",
        "command": ["sh", "-c", script],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": template}
    specs = {"Master": replica, **({"Worker": {**replica, "replicas": workers}} if workers else {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": specs},
    }


class Story:
    """Two projects with a quota of one GPU each; every look at project a checks that its job has not failed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        for project in ("a", "b"):
            cluster.run("rowlock", "project", "create", project, "--gpus", "1")

    def submit(self, project: str, made: Any) -> None:
        self.cluster.api("POST", JOBS.format(project), made)

    def pods(self, project: str) -> list[Any]:
        return list(self.cluster.api("GET", PODS.format(project))["items"])

    def running(self, project: str) -> int:
        pods = self.pods(project)
        return sum(p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"] for p in pods)

    def conditions(self, project: str, name: str) -> dict[str, str]:
        found = self.cluster.api("GET", f"{JOBS.format(project)}/{name}")
        return {c["type"]: c["status"] for c in found.get("status", {}).get("conditions", [])}

    def waits(self, pods: int) -> bool:
        """Job `long` waits whole: new pods, none of them bound."""
        assert self.conditions("a", "long").get("Failed") != "True"
        found = [p for p in self.pods("a") if "deletionTimestamp" not in p["metadata"]]
        return len(found) == pods and not any(p["spec"].get("nodeName") for p in found)

    def explained(self) -> Any:
        return self.cluster.json("rowlock", "explain", "long", "-p", "a", "--json")


def started(story: Story, pods: int) -> set[str]:
    """The uids of job `long`'s pods when it runs on every GPU."""
    story.cluster.until(lambda: story.running("a") == pods, "long runs on every GPU")
    return {p["metadata"]["uid"] for p in story.pods("a")}


def told(story: Story, pods: int) -> None:
    """Soon after it begins to wait, everybody who may be asked has the sentence with its numbers."""
    story.cluster.until(lambda: story.waits(pods), "long was evicted whole and waits")
    made = max(seconds(p["metadata"]["creationTimestamp"]) for p in story.pods("a"))
    story.cluster.until(lambda: "pods fit" in story.explained()["message"], "long says why it waits")
    body = story.explained()
    assert body["phase"] == "Pending"
    assert body["record"]["podsNeeded"] == pods > body["record"]["podsFit"]
    assert "was preempted by a workload of queue b." in body["evicted"]["message"]  # whose readers may not see b's jobs
    sentence = body["message"].partition(": ")[2] or body["message"]
    group = story.cluster.api("GET", GROUPS.format("a"))["items"][0]
    condition = group["status"]["schedulingConditions"][0]
    assert sentence in condition["message"]
    assert seconds(condition["lastTransitionTime"]) - made <= 10  # at once, on a machine that is busy too
    for words in (("describe", "long", "-p", "a"), ("list", "-p", "a"), ("explain", "long", "-p", "a")):
        assert sentence[:60] in story.cluster.run("rowlock", *words)
    assert "preempted; it starts again when there is room" in story.cluster.run("rowlock", "list", "-p", "a")
    events = story.cluster.api("GET", "/api/v1/namespaces/runai-a/events")["items"]
    heard = {
        e["involvedObject"]["kind"] for e in events if e["reason"] == "FailedScheduling" and sentence in e["message"]
    }
    assert heard == {"PodGroup", "PyTorchJob", "Pod"}


def resumed(story: Story, pods: int, before: set[str]) -> None:
    story.cluster.run("rowlock", "wait", "short", "-p", "b", "--timeout", "200s")
    story.cluster.until(lambda: story.running("a") == pods, "long runs again by itself")
    after = {p["metadata"]["uid"] for p in story.pods("a")}
    assert not after & before, "a gang is evicted whole: every pod is a new one"
    conditions = story.conditions("a", "long")
    assert conditions["Running"] == "True" and "Failed" not in conditions
    assert story.explained()["message"] == ""
    assert "preempted" not in story.cluster.run("rowlock", "list", "-p", "a")


def test_on_pretend_nodes(cluster: Cluster) -> None:
    cluster.up("--pretend-nodes", "1", "--simulated-gpus", "8", "--without", "kubelet")
    story = Story(cluster)
    story.submit("a", job("long", 7, "true"))
    before = started(story, 8)
    story.submit("b", job("short", 1, "true", **{"rowlock.dev/pretend-seconds": "5"}))
    cluster.until(lambda: story.running("b") == 2, "the gang of b runs")
    told(story, 8)
    resumed(story, 8, before)


def test_with_the_kubelet(cluster: Cluster) -> None:
    cluster.up("--simulated-gpus", "2")
    story = Story(cluster)
    stop = cluster.data.parent / "stop"
    story.submit("a", job("long", 1, BADLY.format(stop=cluster.data.parent / "end")))
    before = started(story, 2)
    story.submit("b", job("short", 0, BADLY.format(stop=stop)))
    cluster.until(lambda: story.running("b") == 1, "the job of b runs")
    told(story, 2)
    stop.touch()
    resumed(story, 2, before)
    (cluster.data.parent / "end").touch()
    cluster.run("rowlock", "wait", "long", "-p", "a", "--timeout", "200s")
    for pod in story.pods("a"):
        cards = pod["metadata"]["annotations"]["rowlock.dev/devices"]
        assert cards in ("0", "1") and pod["status"]["phase"] == "Succeeded"
