"""What is filled in: rows of the table, functions of other fields, and what Go writes even when it is empty."""

from __future__ import annotations

from typing import Any

from rowlock.apiserver.schema import decoding, types
from rowlock.apiserver.schema.decoding import Walk

PERCENT = {"type": "Percent", "value": 100, "periodSeconds": 15}
PODS = {"type": "Pods", "value": 4, "periodSeconds": 15}


def decode(name: str, value: dict[str, Any]) -> dict[str, Any]:
    return decoding.decode(f"io.k8s.api.{name}", value, Walk())


def test_an_autoscaler_has_what_set_defaults_horizontal_pod_autoscaler_gives_it() -> None:
    target = {"kind": "PyTorchJob", "name": "j"}
    hpa = decode("autoscaling.v2.HorizontalPodAutoscaler", {"spec": {"scaleTargetRef": target, "maxReplicas": 3}})
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    assert hpa["spec"] == {
        "scaleTargetRef": target,
        "maxReplicas": 3,
        "minReplicas": 1,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    assert hpa["status"] == {"desiredReplicas": 0, "currentMetrics": None}


def test_scaling_rules_that_are_there_in_part_get_those_of_their_direction() -> None:
    behavior = decode("autoscaling.v2.HorizontalPodAutoscalerBehavior", {"scaleUp": {"selectPolicy": "Min"}})
    assert behavior == {
        "scaleUp": {"selectPolicy": "Min", "stabilizationWindowSeconds": 0, "policies": [PODS, PERCENT]},
        "scaleDown": {"selectPolicy": "Max", "policies": [PERCENT]},
    }


def test_a_default_is_filled_in_where_an_empty_value_is_dropped() -> None:
    assert decode("core.v1.Probe", {"periodSeconds": 0})["periodSeconds"] == 10
    assert decode("rbac.v1.RoleRef", {"apiGroup": ""})["apiGroup"] == "rbac.authorization.k8s.io"


def test_a_pointer_keeps_the_zero_that_somebody_wrote() -> None:
    spec = decode("core.v1.PodSpec", {"enableServiceLinks": False, "terminationGracePeriodSeconds": 0})
    assert (spec["enableServiceLinks"], spec["terminationGracePeriodSeconds"]) == (False, 0)


def test_nobody_shares_a_default_with_the_table() -> None:
    first = decode("core.v1.PodSpec", {})
    first["securityContext"]["runAsUser"] = 1
    assert decode("core.v1.PodSpec", {})["securityContext"] == {}
    status = decode("core.v1.Node", {})["status"]
    status["nodeInfo"]["machineID"] = "m"
    assert decode("core.v1.Node", {})["status"]["nodeInfo"]["machineID"] == ""
    assert types.schema("io.k8s.api.core.v1.PodSpec")["x-go-defaults"]["securityContext"] == {}
