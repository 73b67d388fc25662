"""How ranks on a real cluster failed: what their statuses and logs tell, and what torch wrote into the termination message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from rowlock.api import Api, LogOptions
from rowlock.archive.archive import Archive
from rowlock.errors import NotFound
from rowlock.kube_evidence.rank_failures import KubeDiagnostics
from rowlock.objects import Object, seconds

JOB: Object = {
    "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j", "namespace": "n", "uid": "job"},
    "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}},
}  # fmt: skip
AT = "2026-01-02T03:04:05Z"
CALLS = 'Traceback (most recent call last):\n  File "/w/t.py", line 9, in step\n    load()\nValueError: bad batch\n'
LOG = "".join(f"2026-01-02T03:04:05.25{n}Z {line}\n" for n, line in enumerate(CALLS.splitlines()))
REPORT = json.dumps({
    "message": {
        "message": "ValueError: bad batch",
        "extraInfo": {"py_callstack": CALLS, "timestamp": str(int(seconds(AT)))},
    }
})  # fmt: skip


class Cluster:
    """One worker that ended so, and its log; no archive yet."""

    def __init__(self, log: str, **state: Any) -> None:
        self.log_text = log
        ended = {"exitCode": 1, "startedAt": "2026-01-02T03:04:00Z", "finishedAt": "2026-01-02T03:04:09Z", **state}
        labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
        status = {"name": "pytorch", "restartCount": 0, "state": {"terminated": ended}}
        self.pod: Object = {
            "metadata": {"name": "j-worker-0", "namespace": "n", "uid": "p", "labels": labels},
            "spec": {"nodeName": "node-1", "containers": [{"name": "pytorch"}]},
            "status": {"containerStatuses": [status]},
        }

    async def log(self, namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        if not self.log_text:
            raise NotFound("its node has gone")
        yield self.log_text.encode()

    async def read(self, *_: Any) -> None:
        raise FileNotFoundError

    def why(self) -> dict[str, Any]:
        diagnostics = KubeDiagnostics(cast(Api, self), cast(Archive, self))
        diagnostics.pods_of = lambda uid: [self.pod]
        (incident,) = asyncio.run(diagnostics.diagnose(JOB))["incidents"]
        return cast(dict[str, Any], incident)


@pytest.mark.parametrize(
    ("log", "message", "at"),
    [
        ("", REPORT, seconds(AT)),
        ("", REPORT[40:], seconds(AT)),
        ("2026-01-02T03:04:05.000000000Z it has 7 batches\n", REPORT, seconds(AT)),
        (LOG, REPORT, seconds(AT) + 0.253),
        (LOG, "", seconds(AT) + 0.253),
        (LOG.replace("ValueError: bad batch", "OSError: it ends"), REPORT, seconds(AT)),
        ("", CALLS, 0.0),
        ("", LOG, seconds(AT) + 0.253),
    ],
)
def test_an_error_is_found_in_the_log_and_in_the_termination_message(log: str, message: str, at: float) -> None:
    """Torch's own report counts, with the time of the log where that tells the same error; a kubelet may also put the log's end there."""
    incident = Cluster(log, message=message).why()
    assert incident["sentence"] == (
        "rank 1 (pod j-worker-0, node node-1) ended with exit code 1 after 9.0 s: ValueError: bad batch (t.py:9 in step)."
    )
    assert incident["deaths"][0]["trouble"]["at"] == pytest.approx(at, abs=1e-3)


def test_what_is_no_report_is_not_taken_for_one() -> None:
    incident = Cluster("2026-01-02T03:04:05.000000000Z it has 7 batches\n", message='{"message": 7}').why()
    assert incident["sentence"].endswith("the last line of its log: it has 7 batches.")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "EvictionByEvictionAPI",
            "was evicted, as `kubectl drain` of its node does it, after 9.0 s: EvictionByEvictionAPI: so",
        ),
        ("TerminationByKubelet", "was stopped by the kubelet after 9.0 s: TerminationByKubelet: so"),
        ("PreemptionByScheduler", "was preempted by the cluster's scheduler after 9.0 s: PreemptionByScheduler: so"),
    ],
)
def test_a_pod_that_the_cluster_disrupted_has_its_reason(reason: str, told: str) -> None:
    cluster = Cluster("", exitCode=143)
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "so"}
    cluster.pod["status"]["conditions"] = [disrupted]
    assert cluster.why()["sentence"] == f"rank 1 (pod j-worker-0, node node-1) {told}."


def completed(*logs: str) -> list[str]:
    """The remarks on a job whose pods have all succeeded and left these logs."""
    cluster = Cluster("", exitCode=0)
    pods = []
    for index, log in enumerate(logs):
        pod = Cluster(log, exitCode=0).pod
        pod["metadata"] |= {"name": log, "uid": f"p{index}"}
        pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "training.kubeflow.org/replica-index": str(index)}
        pods.append(pod)

    async def read(namespace: str, pod: str, options: LogOptions) -> AsyncIterator[bytes]:
        yield pod.encode()

    cluster.log = read  # type: ignore[method-assign] # the name of a pod is its log
    diagnostics = KubeDiagnostics(cast(Api, cluster), cast(Archive, cluster))
    diagnostics.pods_of = lambda uid: pods
    return [str(remark["sentence"]) for remark in asyncio.run(diagnostics.diagnose(JOB))["remarks"]]


def losses(*values: float) -> str:
    return "".join(f"2026-01-02T03:04:05.{n:09}Z step={n} loss={value}\n" for n, value in enumerate(values))


def test_a_result_that_is_wrong_is_told_after_success() -> None:
    good = [1 / (n + 1) for n in range(40)]
    assert completed(losses(*good), losses(*good)) == []
    nan = "loss of rank 1 is nan from step 30 on"
    assert completed(losses(*good[:30], *[float("nan")] * 10)) == [nan]
    assert completed(losses(*[0.5] * 40)) == [
        "loss of rank 1 was 0.5 in all 40 lines that tell it: nothing was learned"
    ]
    (lengths,) = completed(losses(*good), losses(*good[:20]))
    assert lengths.endswith("rank 2 at step 19, the others at step 39")


def test_ranks_that_each_say_that_they_are_the_only_one_are_told() -> None:
    good = losses(*[1 / (n + 1) for n in range(40)])
    apart = "rank 1 and rank 2 each say in their log that they are the only rank (a world of 1): each works alone"
    assert completed(f"rank 0 of 1\n{good}", f"rank 0 of 1\n{good[:900]}") == [apart]
    assert completed(f"rank 0 of 1\n{good}", good) == completed(f"rank 0 of 1\n{good}") == []


def test_of_a_long_log_the_end_is_read_and_that_is_said() -> None:
    assert completed(losses(*[float("nan")] * 3000))[0].startswith(
        "loss of rank 1 is nan from step 0 (or an earlier one)"
    )
    assert completed(losses(*[0.5] * 3000)) == [], "it may have been another before"


def test_nothing_is_said_of_a_result_while_a_pod_runs() -> None:
    cluster = Cluster(losses(*[0.5] * 40), exitCode=0)
    running: Object = {
        **cluster.pod,
        "metadata": {**cluster.pod["metadata"], "uid": "q"},
        "status": {"phase": "Running"},
    }
    diagnostics = KubeDiagnostics(cast(Api, cluster), cast(Archive, cluster))
    diagnostics.pods_of = lambda uid: [cluster.pod, running]
    assert asyncio.run(diagnostics.diagnose(JOB))["remarks"] == []
