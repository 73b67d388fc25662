"""Ephemeral containers, which `kubectl debug` adds to a pod that runs: rows of `answers.py`."""

from __future__ import annotations

from typing import Any

from tests.conformance.rights_cases import BINDINGS, ROLES, binding, role, rule

PODS, ONE = "/api/v1/namespaces/{ns}/pods", "/api/v1/namespaces/{ns}/pods/p"
HERE = ONE + "/ephemeralcontainers"
JSON, MERGE, STRATEGIC = "application/json", "application/merge-patch+json", "application/strategic-merge-patch+json"
STEPS, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
IMAGE = "example.test/none:1"
Row = list[Any]


def pod(ephemeral: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": IMAGE}]
    spec = {"automountServiceAccountToken": False, "containers": containers, **spec}
    spec |= {} if ephemeral is None else {"ephemeralContainers": ephemeral}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def look(name: str = "look", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, **more}


def added(*containers: dict[str, Any], query: str = "", media: str = STRATEGIC) -> Row:
    return ["PATCH", HERE + query, {"spec": {"ephemeralContainers": list(containers)}}, media]


def refused(*containers: dict[str, Any], **spec: Any) -> list[Row]:
    return [["POST", PODS, pod(**spec)], added(*containers)]


MADE: Row = ["POST", PODS, pod()]
READ: Row = ["GET", ONE, None]
PROBE = {"exec": {"command": ["true"]}}

EPHEMERAL_CASES: dict[str, list[Any]] = {
    "ephemeral: one more": [MADE, added(look(stdin=True, tty=True, targetContainerName="main")), ["GET", HERE, None], READ],
    "ephemeral: two, one after the other": [MADE, added(look()), added(look("again")), READ],
    "ephemeral: the same again": [MADE, added(look()), added(look()), READ],
    "ephemeral: put": [MADE, ["PUT", HERE, pod([look()])], ["PUT", HERE, pod([look("again"), look()])], READ],
    "ephemeral: put changes nothing else": [
        MADE, ["PUT", HERE, {**pod([look()], activeDeadlineSeconds=9), "metadata": {"name": "p", "labels": {"a": "b"}}}], READ,
    ],
    "ephemeral: patch changes nothing else": [
        MADE, ["PATCH", HERE, {"metadata": {"labels": {"a": "b"}}, "spec": {"activeDeadlineSeconds": 9}}, STRATEGIC], READ,
    ],
    "ephemeral: merge patch": [MADE, added(look(), media=MERGE), added(look("again"), media=MERGE), READ],
    "ephemeral: JSON patch": [MADE, ["PATCH", HERE, [{"op": "add", "path": "/spec/ephemeralContainers", "value": [look()]}], STEPS]],
    "ephemeral: apply": [
        MADE, ["PATCH", HERE + "?fieldManager=a", {"apiVersion": "v1", "kind": "Pod", "spec": {"ephemeralContainers": [look()]}}, APPLY], READ,
    ],
    "ephemeral: who wrote it": [MADE, added(look(), query="?fieldManager=debugger"), READ],
    "ephemeral: tried only": [MADE, added(look(), query="?dryRun=All"), READ],
    "ephemeral: of a pod that is not there": [added(look()), ["GET", HERE, None], ["PUT", HERE, pod([look()])]],
    "ephemeral: another name": [MADE, ["PUT", HERE, {**pod([look()]), "metadata": {"name": "q"}}]],
    "ephemeral: an old revision": [MADE, ["PUT", HERE, {**pod([look()]), "metadata": {"name": "p", "resourceVersion": "1"}}]],
    "ephemeral: another uid": [MADE, ["PUT", HERE, {**pod([look()]), "metadata": {"name": "p", "uid": "another"}}]],
    "ephemeral: other methods": [MADE, ["POST", HERE, pod([look()])], ["DELETE", HERE, None]],
    "ephemeral: unknown fields": [
        MADE, added(look(colour="red"), query="?fieldValidation=Strict"), added(look(colour="red"), query="?fieldValidation=Warn"),
    ],
    "ephemeral: not a list": [MADE, ["PATCH", HERE, {"spec": {"ephemeralContainers": {"name": "look"}}}, MERGE]],
    "ephemeral: at birth": [["POST", PODS, pod([look()])]],
    "ephemeral: through the pod itself": [
        MADE, ["PATCH", ONE, {"spec": {"ephemeralContainers": [look()]}}, STRATEGIC], added(look()),
        ["PUT", ONE, pod([look()])], ["PUT", ONE, pod()], ["PATCH", ONE, {"metadata": {"labels": {"a": "b"}}}, MERGE],
    ],
    "ephemeral: taken away": [MADE, added(look()), ["PUT", HERE, pod([look("again")])], ["PUT", HERE, pod()]],
    "ephemeral: changed": [MADE, added(look()), added(look(command=["true"]))],
    "ephemeral: no name": refused({"image": IMAGE}),
    "ephemeral: a bad name": refused(look("A_b")),
    "ephemeral: no image": refused({"name": "look"}),
    "ephemeral: space around an image": refused(look(image=" x")),
    "ephemeral: a container's name": refused(look("main")),
    "ephemeral: an init container's name": refused(look("first"), initContainers=[{"name": "first", "image": IMAGE}]),
    "ephemeral: a name twice": [MADE, ["PUT", HERE, pod([look(), look()])]],
    "ephemeral: no such target": refused(look(targetContainerName="other")),
    "ephemeral: itself as a target": refused(look(targetContainerName="look")),
    "ephemeral: ports": refused(look(ports=[{"containerPort": 80}])),
    "ephemeral: probes": refused(look(livenessProbe=PROBE, readinessProbe=PROBE, startupProbe=PROBE)),
    "ephemeral: hooks": refused(look(lifecycle={"preStop": PROBE})),
    "ephemeral: resources": refused(look(resources={"requests": {"cpu": "1"}})),
    "ephemeral: empty resources": refused(look(resources={})),
    "ephemeral: a restart policy": refused(look(restartPolicy="Always")),
    "ephemeral: restart rules that are switched off": [
        ["POST", PODS, pod(containers=[look(restartPolicy="Always")], initContainers=[look("first", restartPolicy="Always")])],
        ["PATCH", ONE, {"spec": {"containers": [look(restartPolicy="Never")]}}, STRATEGIC],
    ],
    "ephemeral: a resize policy": refused(look(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}])),
    "ephemeral: everything at once": refused(
        look("main", ports=[{"containerPort": 0}], livenessProbe=PROBE, resources={"requests": {"cpu": "1"}},
             targetContainerName="x", env=[{"name": ""}], volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "../x"}]),
    ),
    "ephemeral: volumes": refused(look(volumeMounts=[{"name": "v", "mountPath": "/v"}]), volumes=[{"name": "v", "emptyDir": {}}]),
    "ephemeral: sub-paths": refused(
        look(volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "x"}, {"name": "v", "mountPath": "/w", "subPathExpr": "y"}]),
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "ephemeral: no such volume": refused(look(volumeMounts=[{"name": "v", "mountPath": "/v"}])),
    "ephemeral: a log of one of several": [
        ["POST", PODS, pod(containers=[look("one"), look("two")], initContainers=[look("first")])], added(look()),
        ["GET", ONE + "/log", None], ["GET", ONE + "/log?container=nobody", None],
    ],
    "ephemeral: whose right": [
        MADE,
        ["POST", ROLES, role("pods", rule("get update patch", "pods"))],
        ["POST", BINDINGS, binding("pods", "Role", "pods")],
        [*added(look()), "ana"],
        ["GET", HERE, None, JSON, "ana"],
        ["POST", ROLES, role("debug", rule("patch", "pods/ephemeralcontainers"))],
        ["POST", BINDINGS, binding("debug", "Role", "debug")],
        [*added(look()), "ana"],
        ["PUT", HERE, pod([look()]), JSON, "ana"],
    ],
    "ephemeral: an administrator of the namespace": [
        MADE, ["POST", BINDINGS, binding("b", "ClusterRole", "admin")], [*added(look()), "ana"], ["GET", HERE, None, JSON, "ana"],
    ],
}  # fmt: skip
