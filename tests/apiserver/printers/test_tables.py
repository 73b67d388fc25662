"""The words in kubectl's columns."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock import kinds
from rowlock.apiserver.printers import tables
from rowlock.kinds import Kind
from rowlock.quantity import human_duration

RUNNING = {"state": {"running": {}}, "ready": True}
DONE: dict[str, Any] = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}

PODS: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("pending", {"phase": "Pending"}, ["0/1", "Pending", "0"]),
    ("running", {"phase": "Running", "containerStatuses": [{"name": "c", **RUNNING}]}, ["1/1", "Running", "0"]),
    ("completed", {"phase": "Succeeded", "containerStatuses": [{"name": "c", **DONE}]}, ["0/1", "Completed", "0"]),
    ("waiting", {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
     ["0/1", "ErrImagePull", "0"]),
    ("init", {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
     ["0/1", "Init:0/1", "0"]),
    ("init failed", {"phase": "Pending", "initContainerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
     ["0/1", "Init:ExitCode:3", "0"]),
    ("restarted", {"phase": "Running", "containerStatuses": [
        {**RUNNING, "restartCount": 2, "lastState": {"terminated": {"finishedAt": "1970-01-01T00:00:40Z"}}}]},
     ["1/1", "Running", "2 (60s ago)"]),
    ("stopped sidecar", {"phase": "Succeeded", "conditions": [{"type": "Initialized", "status": "True"}],
        "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 143}}}],
        "containerStatuses": [{"name": "c", **DONE}]}, ["0/1", "Completed", "0"]),
    ("evicted", {"phase": "Failed", "reason": "Evicted"}, ["0/1", "Evicted", "0"]),
    ("signal", {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"signal": 9, "exitCode": 137}}}]},
     ["0/1", "Signal:9", "0"]),
]  # fmt: skip


@pytest.mark.parametrize(("status", "wanted"), [row[1:] for row in PODS], ids=[row[0] for row in PODS])
def test_pods(status: dict[str, Any], wanted: list[Any]) -> None:
    spec: dict[str, Any] = {"containers": [{"name": "c"}]}
    if "initContainerStatuses" in status:
        spec["initContainers"] = [{"name": "i"}]
    pod = {"metadata": {"name": "p"}, "spec": spec, "status": status}
    assert tables.table(kinds.POD, [pod], 100.0)["rows"][0]["cells"][1:4] == wanted
    gone = {**pod, "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    cells = tables.table(kinds.POD, [gone], 100.0)["rows"][0]["cells"]
    assert cells[2] == ("Terminating" if status["phase"] not in ("Succeeded", "Failed") else wanted[1])


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda k: k.resource)
def test_every_kind_fills_its_columns(kind: Kind) -> None:
    made = tables.table(kind, [{"metadata": {"name": "x"}}], 0.0)
    assert len(made["rows"][0]["cells"]) == len(made["columnDefinitions"])


AGES = {0: "0s", 119: "119s", 120: "2m", 125: "2m5s", 601: "10m", 10_800: "3h", 11_100: "3h5m", 172_799: "47h",
        172_800: "2d", 180_000: "2d2h", 800_000: "9d", 63_072_001: "2y"}  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), AGES.items())
def test_ages(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_queues_show_what_they_may_have_and_what_they_hold() -> None:
    figures = {"fairShare": "1500m", "allocated": "300m", "requested": "2"}
    status = {name: {"nvidia.com/gpu": amount} for name, amount in figures.items()}
    queue = {"metadata": {"name": "a"}, "spec": {"resources": {"gpu": {"quota": 1}}}, "status": status}
    free = {"metadata": {"name": "b"}, "spec": {"resources": {"gpu": {"quota": -1}}}}
    made = tables.table(kinds.QUEUE, [queue, free], 0.0)
    names = [column["name"] for column in made["columnDefinitions"]]
    at = names.index("GPU Quota")
    assert names[at : at + 4] == ["GPU Quota", "Fair Share", "Allocated", "Requested"]
    assert [row["cells"][at : at + 4] for row in made["rows"]] == [
        ["1", "1.5", "0.3", "2"],
        ["unlimited", None, None, None],
    ]


def test_a_service_shows_its_outer_addresses_and_a_claim_its_older_class() -> None:
    service = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "externalIPs": ["1.2.3.4", "1.2.3.5"]}}
    assert tables.table(kinds.SERVICE, [service], 0.0)["rows"][0]["cells"][3] == "1.2.3.4,1.2.3.5"
    claim = {"metadata": {"name": "c", "annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}, "spec": {}}
    assert tables.table(kinds.PERSISTENT_VOLUME_CLAIM, [claim], 0.0)["rows"][0]["cells"][5] == "old"
