"""What may still change in a pod: tolerations may come, gates may go, and a gated pod may be told where to run."""

from __future__ import annotations

import json
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
