"""What may still change in a pod: tolerations may come, gates may go, and a gated pod may be told where to run."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.validation import pods as pod_validation
from rowlock.errors import Invalid
from rowlock.objects import merge_patch

META = {"name": "p", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
NEEDS = {"key": "a", "operator": "Exists"}


def changed(spec: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    admission = AdmissionChain(clock=lambda: 0.0)
    given = {"spec": {"containers": [{"name": "c", "image": "x"}], **spec}}
    made = admission.create(kinds.POD, {"apiVersion": "v1", "kind": "Pod", "metadata": META, **given}, WriteOptions())
    new = merge_patch(json.loads(json.dumps(made)), {"spec": patch})
    found: dict[str, Any] = admission.update(kinds.POD, made, new, "", WriteOptions())["spec"]
    return found


def needs(*terms: dict[str, Any]) -> dict[str, Any]:
    where = {"nodeSelectorTerms": [{"matchExpressions": [term]} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": where}}}


GATED: dict[str, Any] = {"schedulingGates": [{"name": "a/b"}, {"name": "c/d"}]}


def test_every_pod_keeps_the_tolerations_that_every_pod_has() -> None:
    keys = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
    assert [t["key"] for t in changed({}, {"tolerations": None})["tolerations"]] == keys
    assert [t["key"] for t in changed({}, {"tolerations": [NEEDS]})["tolerations"]] == ["a", *keys]
    soon = {"key": keys[0], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}
    assert [t["tolerationSeconds"] for t in changed({}, {"tolerations": [soon]})["tolerations"]] == [9, 300]


def test_a_gated_pod_may_be_told_where_to_run() -> None:
    assert changed(GATED, {"nodeSelector": {"a": "b"}})["nodeSelector"] == {"a": "b"}
    assert changed(GATED, needs(NEEDS))["affinity"]["nodeAffinity"]
    assert changed(GATED, {"schedulingGates": [{"name": "c/d"}]})["schedulingGates"] == [{"name": "c/d"}]


@pytest.mark.parametrize(
    ("spec", "patch", "said"),
    [
        ({}, GATED, "only deletion is allowed, but found new scheduling gate 'a/b'"),
        ({}, {"nodeSelector": {"a": "b"}}, "pod updates may not change fields other than"),
        ({**GATED, "nodeSelector": {"a": "b"}}, {"nodeSelector": None}, "only additions to spec.nodeSelector are"),
        ({**GATED, **needs(NEEDS)}, needs(NEEDS, NEEDS), "no additions/deletions to non-empty NodeSelectorTerms"),
        ({**GATED, **needs(NEEDS)}, needs({**NEEDS, "key": "b"}), "only additions are allowed"),
        ({"tolerations": [NEEDS]}, {"tolerations": []}, "existing toleration can not be modified except its"),
        ({}, {"initContainers": [{"name": "i", "image": "x"}]}, "spec.initContainers: Forbidden: pod updates may not"),
    ],
)
def test_what_may_not_change_is_refused(spec: dict[str, Any], patch: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as refused:
        changed(spec, patch)
    assert said in refused.value.message


def test_a_grace_period_that_never_made_sense_becomes_one_second() -> None:
    assert changed({"terminationGracePeriodSeconds": -1}, {"terminationGracePeriodSeconds": 1})["containers"]


def test_a_forbidden_change_is_shown() -> None:
    old = {"nodeName": "a", "containers": [{"name": "c", "image": "x"}]}
    new = {"containers": [{"name": "c", "image": "y", "env": [{"name": "K", "value": "v"}]}], "nodeName": "b"}
    (cause,) = pod_validation.pod_update_causes({"spec": old}, {"spec": new})
    assert cause.message.splitlines()[1:] == [
        "  spec.containers[0].env:",
        '+ [{"name": "K", "value": "v"}]',
        "  spec.nodeName:",
        '- "a"',
        '+ "b"',
    ]
    assert list(pod_validation.field_differences([1, 2], [1], "spec.x")) == ["  spec.x:", "- [1, 2]", "+ [1]"]


def test_long_lists_cost_their_length_not_its_square() -> None:
    """20,000 tolerations against each other, and as many gates, were a quarter of a minute of the event loop."""
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(20_000)]
    gates = [{"name": f"a.b/c{number}"} for number in range(20_000)]
    pods = [
        {"spec": {"tolerations": many, "schedulingGates": gates[:count]}}
        for many, count in ((tolerations, 20_000), (tolerations[::-1], 19_999))
    ]
    began = time.process_time()
    assert [cause.field for cause in pod_validation.pod_update_causes(*pods)] == []
    fewer = {"spec": {"tolerations": tolerations[1:], "schedulingGates": gates}}
    assert [cause.field for cause in pod_validation.pod_update_causes(pods[0], fewer)] == ["spec.tolerations"]
    assert time.process_time() - began < 2
