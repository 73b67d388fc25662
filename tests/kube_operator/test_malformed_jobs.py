"""Pod templates of JobSets and runtimes are open where `--operator own` has brought the kinds: whatever stands there, an Event says so.

Nothing here may raise: a controller that does is called a bug, and tries again for ever.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from rowlock.api import Decision, Record
from rowlock.kinds import CLUSTER_TRAINING_RUNTIME, JOB_SET, TRAIN_JOB, Kind
from rowlock.kube_operator.trainer_controllers import CheckedTrainJobController, jobset_gang_controllers
from rowlock.objects import Key, Object, name
from rowlock.training.trainjob.runtimes import shipped_runtimes

JUNK: tuple[Any, ...] = (7, "x", None, [], {}, [7], [None], {"a": 7}, True, [{"name": 7}], -1)
META = {"namespace": "n", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
CONTAINER = {
    "name": "main",
    "image": "img",
    "env": [{"name": "A", "value": "b"}],
    "resources": {"limits": {"cpu": "1"}},
    "volumeMounts": [{"name": "v", "mountPath": "/x"}],
}
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"schedulerName": "rowlock-scheduler", "containers": [CONTAINER], "volumes": [{"name": "v"}]},
}
JOBSET = {
    "apiVersion": JOB_SET.api_version,
    "kind": JOB_SET.name,
    "metadata": {"name": "js", **META},
    "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}]},
}


class Objects:
    """A View of a few objects."""

    revision = 1

    def __init__(self, *objects: tuple[Kind, Object]) -> None:
        self._objects = {(kind, name(obj)): obj for kind, obj in objects}

    def get(self, kind: Kind, _: str, wanted: str) -> Object | None:
        return self._objects.get((kind, wanted))

    def metadata(self, kind: Kind, namespace: str, wanted: str) -> dict[str, Any] | None:
        found = self.get(kind, namespace, wanted)
        return None if found is None else found.get("metadata")

    def has_ended(self, *_: Any) -> bool:
        return False

    def all(self, kind: Kind, _: str = "") -> list[Object]:
        return [obj for (one, _), obj in self._objects.items() if one is kind]

    def keys(self, kind: Kind, _: str = "") -> list[Key]:
        return [Key("n", called) for one, called in self._objects if one is kind]

    def by_owner(self, *_: Any) -> Iterable[Object]:
        return ()

    by_label = by_owner


def with_junk(value: Any) -> Iterator[Any]:
    """The value with each part of it, at any depth, replaced by each piece of junk."""
    yield from JUNK
    keys: Iterable[Any] = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        for part in with_junk(value[key]):
            changed = copy.copy(value)
            changed[key] = part
            yield changed


def told(decision: Decision) -> bool:
    return any(isinstance(write, Record) and write.reason.startswith("Invalid") for write in decision.writes)


def test_a_set_with_anything_in_its_templates() -> None:
    checked, gangs = jobset_gang_controllers([JOB_SET])
    refused = 0
    for spec in with_junk(JOBSET["spec"]):
        view = Objects((JOB_SET, {**JOBSET, "spec": spec}))
        refused += told(checked.decide(view, Key("n", "js"), 1.0))
        gangs.decide(view, Key("n", "js"), 1.0)
    assert refused > 200


@pytest.mark.parametrize("runtime", shipped_runtimes(), ids=name)
def test_a_runtime_with_anything_in_it(runtime: Object) -> None:
    reference = {"apiGroup": TRAIN_JOB.group, "kind": CLUSTER_TRAINING_RUNTIME.name, "name": name(runtime)}
    spec = {"runtimeRef": reference, "trainer": {"numNodes": 2, "env": [{"name": "A", "value": "b"}]}}
    head = {"apiVersion": TRAIN_JOB.api_version, "kind": TRAIN_JOB.name}
    job = {**head, "metadata": {"name": "tj", **META}, "spec": spec}
    refused = 0
    for broken in with_junk(runtime["spec"]):
        view = Objects((TRAIN_JOB, job), (CLUSTER_TRAINING_RUNTIME, {**runtime, "spec": broken}))
        refused += told(CheckedTrainJobController().decide(view, Key("n", "tj"), 1.0))
    assert refused > 200
