"""Schemas of custom kinds: the quick look at a value never misses what the thorough one finds."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from rowlock import kinds
from rowlock.apiserver.schema import crd_schema, types

CONTAINER = {
    "name": "pytorch",
    "image": "x",
    "args": ["a", "b"],
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "ports": [{"name": "p", "containerPort": 80}, {"name": "q", "containerPort": 81}],
    "resources": {"limits": {"cpu": 1, "memory": "1Gi", "nvidia.com/gpu": "1"}},
    "livenessProbe": {"httpGet": {"port": "p", "path": "/"}, "periodSeconds": 3},
}
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [CONTAINER], "tolerations": [{"key": "k", "tolerationSeconds": 3}], "hostNetwork": True},
}
SPEC = {
    "runPolicy": {"suspend": False, "backoffLimit": 2, "schedulingPolicy": {"minResources": {"cpu": "1"}}},
    "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "Never", "template": TEMPLATE}},
}
ODD: list[Any] = [
    None,
    -1,
    2**31,
    2**63,
    1.0,
    1.5,
    True,
    "",
    "x",
    "1Gi",
    [],
    {},
    ["a", "a"],
    {"name": "A"},
    [None],
    [{}],
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of the value with one of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def test_the_quick_look_finds_what_the_thorough_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, node = random.Random(5), types.schema_of(kinds.PYTORCHJOB)
    values = [{"spec": SPEC}]
    for _ in range(3000):
        value = copy.deepcopy(values[0])
        for _ in range(rng.randint(1, 2)):
            container, key = rng.choice(places(value["spec"]) or [(value, "spec")])
            if container is not value and isinstance(container, dict) and rng.random() < 0.2:
                del container[key]
            elif isinstance(container, list) and rng.random() < 0.3:
                container.append(copy.deepcopy(container[key]))
            else:
                container[key] = copy.deepcopy(rng.choice(ODD))
        values.append(value)
    monkeypatch.setattr(crd_schema, "_MANY", 0)  # long lists are looked at piece by piece; here all are
    quick = [crd_schema.validate(value, node) for value in values]
    monkeypatch.setattr(crd_schema, "_fits", lambda *_: False)
    monkeypatch.setattr(crd_schema, "_plain_keys", lambda *_: None)
    assert quick == [crd_schema.validate(value, node) for value in values]
    assert not any(quick[0]), "the plain one is right"
    assert 500 < sum(any(found) for found in quick) < 2900


@pytest.mark.parametrize("wrong", [{}, {"containers": None}], ids=["a field is missing", "one has a wrong type"])
def test_long_lists_that_fit_are_looked_through_once(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]) -> None:
    """Ports have numbers as keys: 26,338 of them, in a job with a mistake elsewhere, held the event loop for a fifth of a second."""
    looks, fits = [0], crd_schema._fits
    monkeypatch.setattr(crd_schema, "_fits", lambda *args: (looks.__setitem__(0, looks[0] + 1), fits(*args))[1])
    monkeypatch.setattr(crd_schema, "_check_scalar", lambda *_: pytest.fail("a number or a name was looked at closely"))
    ports = [{"containerPort": number, "protocol": "TCP", "name": f"p{number}"} for number in range(1, 2001)]
    template = {"spec": {"ephemeralContainers": [{"name": "e", "ports": ports}], **wrong}}
    job = {"spec": {"pytorchReplicaSpecs": {"Worker": {"template": template}}}}
    schema, lists, _ = crd_schema.validate(job, types.schema_of(kinds.PYTORCHJOB))
    assert len(schema) == 1 and not lists and len(ports) < looks[0] < 5 * len(ports)
