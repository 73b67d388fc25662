"""JobSets and TrainJobs with something else where an object or a list belongs: refused in words, by create and by update."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rowlock import kinds
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.errors import ApiError
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.storage import bootstrap
from rowlock.storage.store import Store
from rowlock.webhooks.trainer_webhooks import TrainerWebhooks

POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}
REPLICATED = {
    "name": "a",
    "replicas": 1,
    "template": {"spec": {"parallelism": 1, "completions": 1, "template": {"spec": POD}}},
}
SPECS: dict[Kind, Object] = {
    kinds.JOB_SET: {
        "replicatedJobs": [REPLICATED],
        "network": {"subdomain": "s"},
        "failurePolicy": {"maxRestarts": 1, "rules": [{"name": "r", "action": "FailJobSet"}]},
        "successPolicy": {"operator": "All"},
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "coordinator": {"replicatedJob": "a", "jobIndex": 0, "podIndex": 0},
    },
    kinds.TRAIN_JOB: {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": 1, "env": [{"name": "A", "value": "b"}], "resourcesPerNode": {"limits": {"cpu": "1"}}},
        "runtimePatches": [{"manager": "tests.rowlock.dev/me"}],
        "labels": {"a": "b"},
    },
}
WRONG: tuple[Any, ...] = ("x", 2, 1.5, True, [], {}, [True], ["x"], [None], {"x": 1})


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all objects and lists below `value`."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [place for key, child in children for place in places(child, (*at, key))]
    return [at, *below] if isinstance(value, dict | list) else below


def replaced(spec: Object, place: tuple[Any, ...], wrong: Any) -> Any:
    if not place:
        return wrong
    made: Any = copy.deepcopy(spec)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong
    return made


@pytest.mark.parametrize("kind", list(SPECS), ids=lambda kind: kind.name)
def test_no_shape_breaks_the_webhooks(kind: Kind) -> None:
    store = Store.open(admission=lambda view: AdmissionChain(view, webhooks=TrainerWebhooks()))
    for seed, obj in bootstrap.initial_objects():
        store.core.create(seed, obj)
    store.core.apply_committed(store.core.take_staged())
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    known = store.core.create(
        kind, {**head, "metadata": {"name": "known", "namespace": "default"}, "spec": SPECS[kind]}
    )
    store.core.apply_committed(store.core.take_staged())
    refused = 0
    for number, place in enumerate(places(SPECS[kind])):
        for turn, wrong in enumerate(WRONG):
            spec = replaced(SPECS[kind], place, wrong)
            meta = {"name": f"j{number}-{turn}", "namespace": "default"}
            for write in (
                lambda meta=meta, spec=spec: store.core.create(kind, {**head, "metadata": meta, "spec": spec}),
                lambda spec=spec: store.core.update(kind, {**known, "spec": spec}),
            ):
                try:
                    write()
                except ApiError as error:
                    refused += 1
                    assert error.message, (place, wrong)
                store.core.take_staged()
    assert refused > 100
