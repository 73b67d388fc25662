"""Raw requests, and what a real kube-apiserver answered to them: the words themselves, not only their meaning.

`CASES` is the table; `answers.json` beside it holds the real server's answers, normalised. To record them again:

    python -m tests.conformance.answers KUBECONFIG          all of them
    python -m tests.conformance.answers KUBECONFIG WORD     those whose names begin with that word
"""

from __future__ import annotations

import argparse
import json
import re
import ssl
import uuid
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.conformance import rights_cases
from tests.conformance.cases.ephemeral import EPHEMERAL_CASES

GOLDEN = Path(__file__).with_name("answers.json")
Step = tuple[str, str, Any] | tuple[str, str, Any, str] | tuple[str, str, Any, str, str]
"""Method, path with query, body, content type, user (""= the administrator). `{ns}` is the case's own namespace."""

JSON, MERGE, STRATEGIC = "application/json", "application/merge-patch+json", "application/strategic-merge-patch+json"
STEPS, APPLY, PROTOBUF = (
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
)
MAPS, PODS = "/api/v1/namespaces/{ns}/configmaps", "/api/v1/namespaces/{ns}/pods"
JOBS = "/apis/kubeflow.org/v1/namespaces/{ns}/pytorchjobs"
SECRETS, SERVICES = "/api/v1/namespaces/{ns}/secrets", "/api/v1/namespaces/{ns}/services"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def config_map(name: str = "a", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "1"}, **more}


def pod(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example.test/none:1"}]
    spec = {"automountServiceAccountToken": False, "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def container(**more: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "main", "image": "example.test/none:1", **more}])


def binding(**target: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target}


def job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "example.test/none:1"}]}}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}, **spec}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j"}, "spec": spec}


def create(path: str, body: Any, query: str = "") -> Step:
    return ("POST", path + query, body)


def labelled(**labels: str) -> dict[str, Any]:
    return {**config_map(), "metadata": {"name": "a", "labels": labels}}


EVENTS, NEWER = "/api/v1/namespaces/{ns}/events", "/apis/events.k8s.io/v1/namespaces/{ns}/events"
MOMENT = "2126-01-02T03:04:05.000006Z"  # a time that no collector finds old


def event(**more: Any) -> dict[str, Any]:
    """In the spelling of `events.k8s.io`."""
    about = {"kind": "Pod", "name": "p", "namespace": "{ns}"}
    made = {"eventTime": MOMENT, "type": "Normal", "reason": "Started", "action": "Starting", "note": "it began"}
    who = {"reportingController": "example.test/c", "reportingInstance": "c-0", "regarding": about}
    return {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, **made, **who, **more}


def old_event(**more: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "p", "namespace": "{ns}"}
    return {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "o"}, "involvedObject": about, **more}


CASES: dict[str, list[Step]] = {
    # ---- objects and their life
    "config map": [create(MAPS, config_map()), ("GET", MAPS + "/a", None), ("DELETE", MAPS + "/a", None), ("GET", MAPS + "/a", None)],
    "secret": [create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"a": "b"}}), ("GET", SECRETS + "/s", None)],
    "secret of a type": [create(SECRETS, {"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "data": {}})],
    "secret not base64": [create(SECRETS, {"metadata": {"name": "s"}, "data": {"a": "?"}})],
    "headless service": [create(SERVICES, {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"a": "b"}}})],
    "lease": [create(LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}})],
    "lease of nobody": [create(LEASES, {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}})],
    "job": [create(JOBS, job()), ("GET", JOBS + "/j", None), ("DELETE", JOBS + "/j", None)],
    "pod": [create(PODS, pod()), ("GET", PODS + "/p/status", None), ("DELETE", PODS + "/p?gracePeriodSeconds=0", None)],
    "priority class": [create(CLASSES, {"metadata": {"name": "{ns}"}, "value": 5}), ("PATCH", CLASSES + "/{ns}", {"value": 6}, MERGE), ("DELETE", CLASSES + "/{ns}", None)],
    "two default classes": [create(CLASSES, {"metadata": {"name": "system-x{ns}"}, "value": 5})],
    "immutable config map": [create(MAPS, config_map(immutable=True)), ("PATCH", MAPS + "/a", {"data": {"x": "2"}}, MERGE), ("PATCH", MAPS + "/a", {"immutable": False}, MERGE)],
    "immutable secret type": [create(SECRETS, {"metadata": {"name": "s"}}), ("PATCH", SECRETS + "/s", {"type": "other"}, MERGE)],
    "namespace": [("GET", "/api/v1/namespaces/{ns}", None), create("/api/v1/namespaces", {"metadata": {"name": "{ns}"}})],
    "a collection": [create(MAPS, config_map("a")), create(MAPS, config_map("b")), ("DELETE", MAPS, None)],
    "a collection by name": [create(MAPS, labelled(l="1")), ("DELETE", MAPS + "?labelSelector=l%3D2", None), ("DELETE", MAPS + "?labelSelector=l%3D1", None)],
    # ---- what a body may be
    "empty body": [create(MAPS, b"")],
    "not JSON": [create(MAPS, b"{nope")],
    "JSON null": [create(MAPS, b"null")],
    "a list": [create(MAPS, [])],
    "no kind": [create(MAPS, {"metadata": {"name": "a"}})],
    "another kind": [create(MAPS, pod())],
    "another kind, custom": [create(JOBS, config_map())],
    "another version": [create(MAPS, {**config_map(), "apiVersion": "v2"})],
    "another version, custom": [create(JOBS, {**job(), "apiVersion": "kubeflow.org/v2"})],
    "another namespace": [create(MAPS, {**config_map(), "metadata": {"name": "a", "namespace": "elsewhere"}})],
    "another name": [create(MAPS, config_map()), ("PUT", MAPS + "/a", config_map("b"))],
    "a namespace on a cluster-wide object": [create(CLASSES, {"metadata": {"name": "{ns}", "namespace": "x"}, "value": 1})],
    "YAML": [("POST", MAPS, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}\n", "application/yaml")],
    "a form": [("POST", MAPS, b"a=b", "application/x-www-form-urlencoded")],
    "no content type": [("POST", MAPS, json.dumps(config_map()).encode(), "")],
    "wrong type in a field": [create(MAPS, config_map(data={"x": 1}))],
    "wrong type in a pod": [create(PODS, pod(containers="many"))],
    "wrong type deep in a pod": [create(PODS, container(ports=[{"containerPort": "eighty"}]))],
    "wrong type in a job": [create(JOBS, job(pytorchReplicaSpecs={"Worker": {"replicas": "two"}}))],
    "metadata is no object": [create(MAPS, {**config_map(), "metadata": "a"})],
    "a resourceVersion at birth": [create(MAPS, {**config_map(), "metadata": {"name": "a", "resourceVersion": "5"}})],
    # ---- names, labels, metadata
    "no name": [create(MAPS, {**config_map(), "metadata": {}})],
    "no name, custom": [create(JOBS, {**job(), "metadata": {}})],
    "bad name": [create(MAPS, config_map("A_b"))],
    "bad name, pod": [create(PODS, {**pod(), "metadata": {"name": "A_b"}})],
    "bad name, job": [create(JOBS, {**job(), "metadata": {"name": "A_b"}})],
    "bad name, namespace": [create("/api/v1/namespaces", {"metadata": {"name": "a.b"}})],
    "bad name, service": [create(SERVICES, {"metadata": {"name": "1a"}, "spec": {"clusterIP": "None"}})],
    "long name": [create(MAPS, config_map("x" * 300))],
    "bad generated name": [create(MAPS, {**config_map(), "metadata": {"generateName": "A_"}})],
    "bad label key": [create(MAPS, labelled(**{"a b": "c"}))],
    "bad label value": [create(MAPS, labelled(a="b c"))],
    "long label": [create(MAPS, labelled(a="b" * 64))],
    "label is no text": [create(MAPS, {**config_map(), "metadata": {"name": "a", "labels": {"a": 1}}})],
    "bad annotation": [create(MAPS, {**config_map(), "metadata": {"name": "a", "annotations": {"a b": "c"}}})],
    "bad finalizer": [create(MAPS, {**config_map(), "metadata": {"name": "a", "finalizers": ["plain"]}})],
    "bad owner": [create(MAPS, {**config_map(), "metadata": {"name": "a", "ownerReferences": [{"kind": "X"}]}})],
    "two controllers": [create(MAPS, {**config_map(), "metadata": {"name": "a", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True} for n in "ab"]}})],
    "bad data key": [create(MAPS, config_map(data={"a b": "c"}))],
    "key in both": [create(MAPS, config_map(binaryData={"x": "AA=="}))],
    "a finalizer cannot be added while going": [
        create(MAPS, {**config_map(), "metadata": {"name": "a", "finalizers": ["e.test/a"]}}), ("DELETE", MAPS + "/a", None),
        ("PATCH", MAPS + "/a", {"metadata": {"finalizers": ["e.test/a", "e.test/b"]}}, MERGE),
        ("PATCH", MAPS + "/a", {"metadata": {"finalizers": None}}, MERGE)],
    "uid cannot change": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", {"metadata": {"uid": "other"}}, MERGE)],
    "name cannot change": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", {"metadata": {"name": "b"}}, MERGE)],
    # ---- pods
    "no containers": [create(PODS, pod(containers=[]))],
    "no image": [create(PODS, pod(containers=[{"name": "main"}]))],
    "no container name": [create(PODS, pod(containers=[{"image": "x"}]))],
    "same container twice": [create(PODS, pod(containers=[{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]))],
    "bad container name": [create(PODS, pod(containers=[{"name": "A b", "image": "x"}]))],
    "bad restart policy": [create(PODS, pod(restartPolicy="Sometimes"))],
    "bad pull policy": [create(PODS, container(imagePullPolicy="Maybe"))],
    "bad port": [create(PODS, container(ports=[{"containerPort": 70000}]))],
    "bad quantity": [create(PODS, container(resources={"limits": {"cpu": "lots"}}))],
    "request above limit": [create(PODS, container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}))],
    "half a GPU": [create(PODS, container(resources={"limits": {"nvidia.com/gpu": "500m"}}))],
    "GPUs asked but not limited": [create(PODS, container(resources={"requests": {"nvidia.com/gpu": "1"}}))],
    "negative": [create(PODS, container(resources={"limits": {"cpu": "-1"}}))],
    "unknown volume": [create(PODS, container(volumeMounts=[{"name": "v", "mountPath": "/v"}]))],
    "volume without source": [create(PODS, {**pod(), "spec": {**pod()["spec"], "volumes": [{"name": "v"}]}})],
    "bad environment": [create(PODS, container(env=[{"name": "a=b", "value": "c"}]))],
    "two sources of a value": [create(PODS, container(env=[{"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]))],
    "unknown field path": [create(PODS, container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.colour"}}}]))],
    "unknown account": [create(PODS, pod(serviceAccountName="nobody"))],
    "unknown priority class": [create(PODS, pod(priorityClassName="nobody"))],
    "bad node name": [create(PODS, pod(nodeName="A_b"))],
    "bad grace": [create(PODS, pod(terminationGracePeriodSeconds=-1))],
    "bad deadline": [create(PODS, pod(activeDeadlineSeconds=0))],
    "several wrongs": [create(PODS, pod(containers=[{"name": "A", "imagePullPolicy": "x"}], restartPolicy="x"))],
    "pod spec cannot change": [create(PODS, pod()), ("PATCH", PODS + "/p", {"spec": {"hostname": "h"}}, MERGE)],
    "image may change": [create(PODS, pod()), ("PATCH", PODS + "/p", {"spec": {"containers": [{"name": "main", "image": "x:2"}]}}, STRATEGIC)],
    "containers cannot be added": [create(PODS, pod()), ("PATCH", PODS + "/p", {"spec": {"containers": [{"name": "two", "image": "x"}]}}, STRATEGIC)],
    "bind": [
        create(PODS, pod()),
        create(PODS + "/p/binding", binding(kind="Node", name="n")),
        create(PODS + "/p/binding", binding(name="n")),
        create(PODS + "/p/binding", binding(name="other")),
    ],
    "bind to nothing": [
        create(PODS, pod()),
        create(PODS + "/p/binding", binding(kind="Node", name="")),
        create(PODS + "/p/binding", binding(kind="Pod", name="x")),
    ],
    "bind without a name": [create(PODS, pod()), create(PODS + "/p/binding", {"target": {"name": "n"}})],
    "bind nobody": [create(PODS + "/p/binding", binding(name="n"))],
    "evict": [create(PODS, pod()), create(PODS + "/p/eviction", {"metadata": {"name": "p"}}), ("GET", PODS + "/p", None)],
    "log of a pod that is nowhere": [create(PODS, pod()), ("GET", PODS + "/p/log", None), ("GET", PODS + "/p/log?container=x", None), ("GET", PODS + "/nobody/log", None)],
    "log with wrong options": [create(PODS, pod()), ("GET", PODS + "/p/log?tailLines=-1", None), ("GET", PODS + "/p/log?sinceSeconds=0", None), ("GET", PODS + "/p/log?limitBytes=0", None)],
    # ---- fields that are not there
    "unknown field ignored": [create(PODS, pod(colour="red"), "?fieldValidation=Ignore")],
    "unknown field strict": [create(PODS, pod(colour="red"), "?fieldValidation=Strict")],
    "unknown fields strict, custom": [create(JOBS, {**job(colour="red"), "shape": 1}, "?fieldValidation=Strict")],
    "unknown field in a patch": [create(PODS, pod()), ("PATCH", PODS + "/p?fieldValidation=Strict", {"spec": {"colour": 1}}, MERGE)],
    "same field twice": [("POST", MAPS + "?fieldValidation=Strict", b'{"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}')],
    "bad fieldValidation": [create(MAPS, config_map(), "?fieldValidation=Maybe")],
    "bad dryRun": [create(MAPS, config_map(), "?dryRun=Some")],
    "dry run": [create(MAPS, config_map(), "?dryRun=All"), ("GET", MAPS + "/a", None)],
    "bad field manager": [create(MAPS, config_map(), "?fieldManager=" + "x" * 129)],
    # ---- updates and patches
    "update of nothing": [("PUT", MAPS + "/a", config_map())],
    "update from the past": [create(MAPS, config_map()), ("PUT", MAPS + "/a", {**config_map(), "metadata": {"name": "a", "resourceVersion": "1"}})],
    "update with nonsense": [create(MAPS, config_map()), ("PUT", MAPS + "/a", {**config_map(), "metadata": {"name": "a", "resourceVersion": "x"}})],
    "update without a revision, custom": [create(JOBS, job()), ("PUT", JOBS + "/j", job())],
    "status of a job": [create(JOBS, job()), ("PATCH", JOBS + "/j/status", {"status": {"startTime": "2020-01-01T00:00:00Z"}, "spec": {"nprocPerNode": "9"}}, MERGE)],
    "wrong status of a job": [create(JOBS, job()), ("PATCH", JOBS + "/j/status", {"status": {"startTime": "noon"}}, MERGE)],
    "scale of a job": [create(JOBS, job()), ("GET", JOBS + "/j/scale", None)],
    "merge patch": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", {"data": {"x": None, "y": "2"}}, MERGE)],
    "merge patch that is no object": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", [1], MERGE), ("PATCH", MAPS + "/a", b"nope", MERGE)],
    "merge patch of a wrong type": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", {"data": {"x": 2}}, MERGE), ("PATCH", MAPS + "/a", {"data": 7}, MERGE)],
    "merge patch of a job to a wrong type": [create(JOBS, job()), ("PATCH", JOBS + "/j", {"spec": {"pytorchReplicaSpecs": 7}}, MERGE)],
    "merge patch of nobody": [("PATCH", MAPS + "/a", {"data": {"x": "2"}}, MERGE)],
    "strategic patch of a job": [create(JOBS, job()), ("PATCH", JOBS + "/j", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC)],
    "patch of an unknown kind": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", {"data": {"x": "2"}}, "application/json"), ("PATCH", MAPS + "/a", {"data": {"x": "2"}}, "text/plain")],
    "JSON patch": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", [{"op": "add", "path": "/data/y", "value": "2"}], STEPS)],
    "JSON patch that fails": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", [{"op": "test", "path": "/data/x", "value": "2"}], STEPS)],
    "JSON patch of what is not there": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", [{"op": "remove", "path": "/data/y"}], STEPS), ("PATCH", MAPS + "/a", [{"op": "replace", "path": "/none/y", "value": "1"}], STEPS)],
    "JSON patch that is none": [create(MAPS, config_map()), ("PATCH", MAPS + "/a", {"op": "remove"}, STEPS), ("PATCH", MAPS + "/a", [{"op": "jump", "path": "/x"}], STEPS), ("PATCH", MAPS + "/a", b"[", STEPS)],
    "apply": [("PATCH", MAPS + "/a?fieldManager=m", config_map(), APPLY), ("PATCH", MAPS + "/a?fieldManager=m", config_map(data={"y": "1"}), APPLY)],
    "apply without a manager": [("PATCH", MAPS + "/a", config_map(), APPLY)],
    "apply against another": [("PATCH", MAPS + "/a?fieldManager=m", config_map(), APPLY), ("PATCH", MAPS + "/a?fieldManager=n", config_map(data={"x": "2"}), APPLY), ("PATCH", MAPS + "/a?fieldManager=n&force=true", config_map(data={"x": "2"}), APPLY)],
    "apply without a kind": [("PATCH", MAPS + "/a?fieldManager=m", {"data": {"x": "1"}}, APPLY)],
    "apply of another name": [("PATCH", MAPS + "/a?fieldManager=m", config_map("b"), APPLY)],
    "apply of an unknown field": [("PATCH", PODS + "/p?fieldManager=m", pod(colour="red"), APPLY)],
    "apply of managed fields": [("PATCH", MAPS + "/a?fieldManager=m", {**config_map(), "metadata": {"name": "a", "managedFields": [{"manager": "x"}]}}, APPLY)],
    "apply that forces a merge": [create(MAPS, config_map()), ("PATCH", MAPS + "/a?force=true", {"data": {}}, MERGE)],
    # ---- deletes
    "delete nobody": [("DELETE", MAPS + "/a", None)],
    "delete another uid": [create(MAPS, config_map()), ("DELETE", MAPS + "/a", {"preconditions": {"uid": "x"}})],
    "delete with a bad policy": [create(MAPS, config_map()), ("DELETE", MAPS + "/a", {"propagationPolicy": "Sideways"}), ("DELETE", MAPS + "/a?propagationPolicy=Sideways", None)],
    "delete with bad grace": [create(PODS, pod()), ("DELETE", PODS + "/p?gracePeriodSeconds=soon", None)],
    "delete options of another kind": [create(MAPS, config_map()), ("DELETE", MAPS + "/a", config_map())],
    "delete with both policies": [create(MAPS, config_map()), ("DELETE", MAPS + "/a", {"propagationPolicy": "Orphan", "orphanDependents": True})],
    "put of what is not there": [("PUT", LEASES + "/l", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "h"}}), ("PUT", EVENTS + "/o", old_event()), ("PUT", SERVICES + "/s", {"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}}), ("PUT", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/r", {"metadata": {"name": "r"}, "rules": []}), ("PUT", MAPS + "/a", config_map()), ("PUT", SECRETS + "/s", {"metadata": {"name": "s"}}), ("PUT", LEASES + "/m", {"metadata": {"name": "m", "resourceVersion": "5"}})],
    # ---- events in two spellings
    "event, newer": [create(NEWER, event()), ("GET", NEWER + "/e", None), ("GET", EVENTS + "/e", None), create(NEWER, event())],
    "event, older": [create(EVENTS, old_event(message="m", count=3, source={"component": "c"})), ("GET", NEWER + "/o", None), ("GET", NEWER, None)],
    "event, gone": [("GET", NEWER + "/e", None), create(NEWER, event()), ("DELETE", NEWER + "/e", None), ("DELETE", NEWER + "/e", None)],
    "event patched": [create(NEWER, event()), ("PATCH", NEWER + "/e", {"series": {"count": 2, "lastObservedTime": MOMENT}}, STRATEGIC), ("PATCH", NEWER + "/e", {"note": "again"}, MERGE), ("PATCH", NEWER + "/e", [{"op": "replace", "path": "/regarding/name", "value": "q"}], STEPS), ("GET", EVENTS + "/e", None)],
    "event applied": [("PATCH", NEWER + "/e?fieldManager=m", event(), APPLY), ("GET", EVENTS + "/e", None)],
    "event put": [create(NEWER, event()), ("PUT", NEWER + "/e", event(note="put")), ("PUT", NEWER + "/n", event(metadata={"name": "n"}))],
    "event without its fields": [create(NEWER, event(**{name: ""})) for name in ("type", "reason", "action", "reportingController", "reportingInstance")] + [create(NEWER, event(eventTime=None))],
    "event with older fields": [create(NEWER, event(deprecatedCount=1)), create(NEWER, event(deprecatedSource={"component": "c"})), create(NEWER, event(deprecatedFirstTimestamp="2126-01-02T03:04:05Z"))],
    "event too long": [create(NEWER, event(note="x" * 1025)), create(NEWER, event(reportingInstance="x" * 129)), create(NEWER, event(reportingController="a b"))],
    "event series": [create(NEWER, event(series={"count": 1, "lastObservedTime": MOMENT})), create(NEWER, event(series={"count": 2}))],
    "event elsewhere": [create(NEWER, event(regarding={"kind": "Pod", "namespace": "other"})), create(NEWER, event(metadata={"name": "f"}, regarding={"kind": "Pod"}))],
    "event of unknown fields": [create(NEWER, event(message="x")), create(NEWER, event(metadata={"name": "s"}, message="x"), "?fieldValidation=Strict"), create(NEWER, event(apiVersion="v1"))],
    "old event, dated": [create(EVENTS, old_event(eventTime=MOMENT)), create(EVENTS, old_event(involvedObject={"namespace": "default"})), create(EVENTS, old_event(eventTime=MOMENT, involvedObject={}))],
    "event field selectors": [("GET", NEWER + "?fieldSelector=regarding.name%3Dq", None), ("GET", NEWER + "?fieldSelector=involvedObject.name%3Dq", None), ("GET", NEWER + "?fieldSelector=note%3Dq", None), ("GET", EVENTS + "?fieldSelector=regarding.name%3Dq", None), ("GET", NEWER + "?fieldSelector=reportingController%3Dc", None)],
    "event paths": [("GET", "/apis/events.k8s.io", None), ("GET", NEWER, None, "accept:application/json;as=Table;v=v1;g=meta.k8s.io")],
    # ---- lists and watches
    "bad label selector": [("GET", MAPS + "?labelSelector=a%20b", None), ("GET", MAPS + "?labelSelector=a%20in%20b", None), ("GET", MAPS + "?labelSelector=,", None)],
    "bad field selector": [("GET", MAPS + "?fieldSelector=a", None), ("GET", PODS + "?fieldSelector=spec.colour%3Dred", None), ("GET", JOBS + "?fieldSelector=spec.x%3Dy", None)],
    "bad limit": [("GET", MAPS + "?limit=many", None), ("GET", MAPS + "?limit=-1", None)],
    "bad continue": [("GET", MAPS + "?continue=nonsense", None)],
    "bad revision": [("GET", MAPS + "?resourceVersion=x", None), ("GET", MAPS + "/a?resourceVersion=x", None), ("GET", MAPS + "?watch=1&resourceVersion=x", None)],
    "revision match": [("GET", MAPS + "?resourceVersionMatch=Exact", None), ("GET", MAPS + "?resourceVersionMatch=Best&resourceVersion=1", None), ("GET", MAPS + "?resourceVersionMatch=Exact&resourceVersion=0", None)],
    "streaming list without its match": [("GET", MAPS + "?watch=1&sendInitialEvents=true", None), ("GET", MAPS + "?sendInitialEvents=true", None)],
    "watch of nobody's timeout": [("GET", MAPS + "?watch=1&timeoutSeconds=x", None)],
    "list of a namespace that is not": [("GET", "/apis/kubeflow.org/v1/namespaces/nobody/pytorchjobs", None)],
    # ---- paths and methods
    "no such path": [("GET", "/nothing", None), ("GET", "/api/v9", None), ("GET", "/apis/nobody.test", None), ("GET", "/apis/kubeflow.org/v9", None)],
    "no such kind": [("GET", "/api/v1/colours", None), ("GET", "/api/v1/namespaces/{ns}/colours/a", None), ("GET", "/apis/kubeflow.org/v1/namespaces/{ns}/colours", None)],
    "no such subresource": [create(MAPS, config_map()), ("GET", MAPS + "/a/status", None), ("GET", JOBS + "/j/colour", None)],
    "wrong method": [("POST", MAPS + "/a", config_map()), ("PUT", MAPS, config_map()), ("PATCH", MAPS, {}, MERGE), ("POST", "/api/v1/configmaps", config_map())],
    "wrong method, custom": [("POST", JOBS + "/j", job()), ("PUT", JOBS, job()), ("PATCH", JOBS, {}, MERGE)],
    "accept nothing we have": [("GET", MAPS, None, "accept:text/html"), ("GET", MAPS, None, "accept:application/xml")],
    "accept anything": [("GET", MAPS + "/a", None, "accept:*/*"), ("GET", MAPS + "/a", None, "accept:application/*")],
    "table": [create(MAPS, config_map()), ("GET", MAPS + "/a", None, "accept:application/json;as=Table;v=v1;g=meta.k8s.io")],
    "partial metadata": [create(MAPS, config_map()), ("GET", MAPS + "/a", None, "accept:application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")],
    "yaml answer": [create(MAPS, config_map()), ("GET", MAPS + "/a", None, "accept:application/yaml")],
    **rights_cases.RIGHTS_CASES,
    **EPHEMERAL_CASES,
}  # fmt: skip

_VOLATILE = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
    (r"A_[a-z0-9]{5}\b", "A_XXXXX"),  # a generated name
    (r"(?s)Invalid value: \\?\"\{.*\}\\?\"", "Invalid value: OBJECT"),  # a patched object in full
)
_DROPPED = {"managedFields", "items", "description"}
"""Tested elsewhere, or prose."""


class Server:
    """Sends a case's requests and answers what came back, normalised."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        headers = {"Authorization": f"Bearer {user['token']}"}
        tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._http = httpx.Client(base_url=cluster["server"], headers=headers, verify=tls, timeout=20)

    def close(self) -> None:
        self._http.close()

    def play(self, steps: list[Step]) -> list[Any]:
        namespace = "answers-" + uuid.uuid4().hex[:8]
        self._http.post("/api/v1/namespaces", json={"metadata": {"name": namespace}}).raise_for_status()
        answers = []
        for step in steps:
            answers.append(self._answer(namespace, *step))
            if step[0] != "GET" and step[1].startswith(rights_cases.RBAC):
                self._wait_for_rights(namespace)
        return answers

    def _wait_for_rights(self, namespace: str) -> None:
        """A real server decides from informers, which are milliseconds behind, each in the order of its writes: what was
        written is in force when a later role and its binding are."""
        name, probe = uuid.uuid4().hex[:8], rights_cases.role("probe", rights_cases.rule("get", "pods"))
        for scope, kind in ((f"/namespaces/{namespace}/", "Role"), ("/", "ClusterRole")):
            bound = rights_cases.binding(name, kind, name, {"kind": "User", "name": name})
            plural, where = kind.lower() + "s", rights_cases.RBAC + scope
            self._http.post(where + plural, json={**probe, "metadata": {"name": name}}).raise_for_status()
            self._http.post(where + kind.lower() + "bindings", json=bound).raise_for_status()
            asked = {"verb": "get", "resource": "pods", "namespace": namespace if kind == "Role" else "default"}
            question = {"spec": {"user": name, "resourceAttributes": asked}}
            while not self._http.post(f"{rights_cases.REVIEWS}/subjectaccessreviews", json=question).json()["status"][
                "allowed"
            ]:
                pass
        for plural in ("clusterrolebindings", "clusterroles"):
            self._http.delete(f"{rights_cases.RBAC}/{plural}/{name}").raise_for_status()

    def _answer(self, namespace: str, method: str, path: str, body: Any, *more: str) -> Any:
        media, user = [*more, *(JSON, "")[len(more) :]]
        headers = {"Accept": media.removeprefix("accept:") if media.startswith("accept:") else JSON}
        if user:
            headers["Impersonate-User"] = user.replace("{ns}", namespace)
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if content is not None:
            content = content.replace(b"{ns}", namespace.encode())
            if media:
                headers["Content-Type"] = media
        answer = self._http.request(method, path.replace("{ns}", namespace), content=content, headers=headers)
        return {
            "status": answer.status_code,
            "type": answer.headers.get("content-type", "").split(";")[0],
            "warnings": answer.headers.get_list("warning"),
            "body": _normal(_parsed(answer), namespace),
        }


def _parsed(answer: httpx.Response) -> Any:
    if "yaml" in answer.headers.get("content-type", ""):
        return yaml.load(answer.text, Loader=yaml.BaseLoader)
    try:
        return answer.json()
    except ValueError:
        return answer.text


def _normal(value: Any, namespace: str, key: str = "") -> Any:
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in _DROPPED and v not in ({}, "", None)}
        if kept.get("metadata", {}).keys() <= _DROPPED:  # of a review: nobody reads who wrote the question
            kept.pop("metadata", None)
        return {k: _normal(v, namespace, k) for k, v in kept.items()}
    if isinstance(value, list):
        return [_normal(v, namespace, key + "[]") for v in value]
    if key in ("resourceVersion", "uid") and isinstance(value, str):
        return key.upper()
    if key == "cells[]" and isinstance(value, str) and re.fullmatch(r"\d+s", value):
        return "0s"  # an age: this machine may be busy
    if isinstance(value, str):
        text = value.replace(namespace, "NAMESPACE")
        for pattern, stands_for in _VOLATILE:
            text = re.sub(pattern, stands_for, text)
        return text
    return value


def record(kubeconfig: Path, word: str = "") -> None:
    server, known = Server(kubeconfig), json.loads(GOLDEN.read_text())
    answers = {name: server.play(steps) if name.startswith(word) else known[name] for name, steps in CASES.items()}
    GOLDEN.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.answers", description="Record the answers again."
    )
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("word", nargs="?", default="", help="only cases whose names begin with it")
    options = parser.parse_args()
    record(options.kubeconfig, options.word)


if __name__ == "__main__":
    main()
