"""What comes in: decoding, defaults, validation, in the real server's words; and the operator's recorded answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.evidence import OPERATOR_CASES

from rowlock import kinds
from rowlock.api import Record, WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.apply import managed_fields
from rowlock.apiserver.patch.patches import Patcher
from rowlock.apiserver.schema import types
from rowlock.controllers.recorder import make_event
from rowlock.errors import ApiError
from rowlock.kinds import Kind

META = {"name": "x", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}


def admit(kind: Kind, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    meta = {**META, **body.get("metadata", {})}
    obj = {**body, "apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
    return AdmissionChain(clock=lambda: 0.0).create(kind, obj, WriteOptions(**options))


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def test_a_pod_gets_what_a_real_one_shows() -> None:
    made = admit(kinds.POD, pod(containers=[{"name": "c", "image": "a:1", "resources": {"limits": {"cpu": "1000m"}}}]))
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert container["volumeMounts"][0]["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert [t["key"] for t in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable",
    ]  # fmt: skip
    assert (spec["priority"], spec["preemptionPolicy"], spec["serviceAccount"]) == (
        0,
        "PreemptLowerPriority",
        "default",
    )
    assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}


@pytest.mark.parametrize("source", ["kubelet", "default-scheduler", "pytorchjob-controller"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("regarding", [{"metadata": {**META, "resourceVersion": "7"}}, {"metadata": {"name": "x"}}])
def test_events_of_the_server_are_stored_as_if_they_had_been_decoded(
    source: str, count: int, regarding: dict[str, Any]
) -> None:
    record = Record({"apiVersion": "v1", "kind": "Pod", **regarding}, "Warning", "Why", "ü" * 2000, source, "spec")
    event = make_event(record, "x.1", 1.5, count)
    settled, decoded = (admit(kinds.EVENT, event, is_settled=is_settled) for is_settled in (True, False))
    assert json.dumps(settled) == json.dumps(decoded)


def test_the_name_of_an_event_of_the_server_is_checked() -> None:
    event = make_event(Record({"metadata": META}, "Normal", "Why", "x", "kubelet"), "x" * 300, 1.5)
    with pytest.raises(ApiError, match="no more than 253"):
        admit(kinds.EVENT, {**event, "metadata": {"name": "x" * 300, "namespace": "n"}}, is_settled=True)


def test_an_update_does_not_look_again_at_what_is_stored() -> None:
    """A job of 1.5 MiB held the event loop for 140 ms whenever its status changed."""
    template = pod(containers=[{"name": "pytorch", "image": "x"}])
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}
    job = admit(kinds.PYTORCHJOB, {"spec": spec}, manager="kubectl")
    status = {"conditions": [], "replicaStatuses": {"Master": {"active": 1}}, "unknown": 1}
    options = WriteOptions(manager="training-operator", validation="Warn")
    new = AdmissionChain(clock=lambda: 0.0).update(kinds.PYTORCHJOB, job, {**job, "status": status}, "status", options)
    assert new["spec"] is job["spec"]
    assert new["status"]["replicaStatuses"] == {"Master": {"active": 1}}
    assert options.warnings == ['unknown field "status.unknown"']
    first, second = new["metadata"]["managedFields"]
    assert first is job["metadata"]["managedFields"][0]
    assert (second["manager"], second["subresource"]) == ("training-operator", "status")


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda k: k.resource)
def test_every_kind_has_a_type_and_admission_is_idempotent(kind: Kind) -> None:
    assert types.schema_of(kind)["properties"]["metadata"]
    for body in _examples(kind):
        admission = AdmissionChain(clock=lambda: 0.0)
        made = admit(kind, body)
        assert admission.update(kind, made, json.loads(json.dumps(made)), "", WriteOptions(manager="m")) is made


def _examples(kind: Kind) -> Iterator[dict[str, Any]]:
    if kind is kinds.POD:
        yield pod(volumes=[{"name": "v"}], nodeSelector={"a": "b"})
    elif kind is kinds.SERVICE:
        yield {"spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    elif kind is kinds.PERSISTENT_VOLUME_CLAIM:
        yield {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}}
    elif kind is kinds.CONFIG_MAP:
        yield {"data": {"a": ""}}
        yield {"data": {}}
    elif kind is kinds.EVENT:
        yield {"involvedObject": {"namespace": "n"}, "reason": "R"}
    elif kind is kinds.PRIORITY_CLASS:
        yield {"value": 3, "globalDefault": False}
    elif kind is kinds.PYTORCHJOB:
        template = {"spec": {"containers": [{"name": "pytorch", "image": "x", "ports": [{"containerPort": 1}]}]}}
        yield {"spec": {"runPolicy": {}, "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}}
    elif kind in (kinds.NAMESPACE, kinds.NODE, kinds.SECRET, kinds.SERVICE_ACCOUNT, kinds.QUEUE, kinds.POD_GROUP):
        yield {}


REFUSED: list[tuple[Kind, dict[str, Any], str]] = [
    (kinds.POD, {"spec": [1]}, "json: cannot unmarshal array into Go struct field"),
    (kinds.POD, pod(containers=[]), "spec.containers: Required value"),
    (kinds.POD, pod(restartPolicy="No"), 'supported values: "Always", "OnFailure", "Never"'),
    (kinds.POD, pod(volumes=[{"name": "v"}, {"name": "v"}]), 'spec.volumes[1].name: Duplicate value: "v"'),
    (kinds.POD, pod(containers=[{"name": "c", "image": "x", "resources": {"limits": {"a.b/c": "500m"}}}]),
     "must be an integer"),
    (kinds.POD, pod(containers=[{"name": "c", "image": "x", "resources": {"limits": {"cpu": "many"}}}]),
     "quantities must match the regular expression"),
    (kinds.CONFIG_MAP, {"metadata": {"labels": {"a b": "c"}}}, "name part must consist of alphanumeric characters"),
    (kinds.CONFIG_MAP, {"metadata": {"finalizers": ["x"]}}, "name is neither a standard finalizer name"),
    (kinds.CONFIG_MAP, {"data": {"a/b": "c"}}, "a valid config key must consist of"),
    (kinds.SECRET, {"data": {"a": "%"}}, "illegal base64 data at input byte 0"),
    (kinds.SERVICE, {"spec": {"clusterIP": "10.1.2.3", "ports": [{"port": 80}]}},
     'failed to allocate IP 10.1.2.3: the provided IP (10.1.2.3) is not in the valid range'),
    (kinds.NODE, {"spec": {"taints": [{"key": "a", "effect": "Some"}]}}, "Unsupported value"),
    (kinds.PRIORITY_CLASS, {"value": 2_000_000_000}, "maximum allowed value"),
    (kinds.PADDLEJOB, {"spec": {"paddleReplicaSpecs": {}, "runPolicy": {"activeDeadlineSeconds": 2**70}}},
     'spec.runPolicy.activeDeadlineSeconds in body must be of type integer: "number"'),
    (kinds.JAXJOB, {"spec": {"jaxReplicaSpecs": {"Worker": {"replicas": 2**31}}}},
     '"x" is invalid: .spec.jaxReplicaSpecs.Worker.replicas: Invalid value: 2147483648: should be less than or equal'),
    (kinds.PADDLEJOB, {"spec": {"paddleReplicaSpecs": "x"}},
     ".spec.paddleReplicaSpecs.Worker accessor error: x is of the type string, expected map[string]interface{}"),
    (kinds.EVENT, {"involvedObject": {"namespace": "other"}}, "does not match event.namespace"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "text"), REFUSED, ids=[f"{k.name}: {t[:30]}" for k, _, t in REFUSED])
def test_refusals(kind: Kind, body: dict[str, Any], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        admit(kind, body)
    assert text in caught.value.message


def test_custom_objects_are_pruned_and_say_so() -> None:
    warnings: list[str] = []
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}], "turbo": 1}}
    spec = {"turbo": True, "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}, "Worker": None}}
    made = admit(kinds.PYTORCHJOB, {"spec": spec}, validation="Warn", warnings=warnings)
    assert set(made["spec"]) == {"pytorchReplicaSpecs"}
    assert set(made["spec"]["pytorchReplicaSpecs"]) == {"Master"}
    where = "spec.pytorchReplicaSpecs.Master.template.spec.turbo"
    assert warnings == [f'unknown field "{where}"', 'unknown field "spec.turbo"']  # in order, as the real server


def recorded() -> list[Any]:
    path = OPERATOR_CASES / "admission.json"
    return [c for c in json.loads(path.read_text())["cases"] if "update" not in c["steps"][0]["do"]]


@pytest.mark.parametrize("case", recorded(), ids=lambda c: f"{c['kind']} {c['name']}")
def test_recorded_answers_of_the_real_server(case: dict[str, Any]) -> None:
    step = case["steps"][0]
    manifest = step["do"]["admit"]
    kind = kinds.by_object(manifest)
    warnings: list[str] = []
    try:
        made = admit(kind, manifest, validation="Warn", warnings=warnings)
        answers, spec = [], made.get("spec")
    except ApiError as error:
        answers = [f"POST {kind.name}: {error.code} {error.reason}: {tidy(error.message)}"]
        spec = None
    answers += sorted(f"Warning: {w}" for w in warnings)
    variants = [(v["answers"], v.get("stored")) for v in step["variants"]]
    stored = spec if spec != manifest.get("spec") else None
    assert (answers, stored) in variants


def tidy(text: str) -> str:
    """The runner sorts the causes of a list; their order is random on a real server."""
    head, bracket, rest = text.partition(": [")
    if not bracket or not rest.endswith("]"):
        return text
    return f"{head}: [{', '.join(sorted(split(rest[:-1])))}]"


def split(text: str) -> list[str]:
    """At commas that begin a new path."""
    import re

    return re.split(r", (?=(?:\.?spec|<nil>|metadata)[.\w\[\]<>]*: )", text)


def test_who_owns_what_after_two_writers() -> None:
    admission = AdmissionChain(clock=lambda: 0.0)
    first = admit(kinds.CONFIG_MAP, {"data": {"a": "1", "b": "1"}}, manager="one")
    changed = {**first, "data": {"a": "2", "b": "1"}}
    second = admission.update(kinds.CONFIG_MAP, first, changed, "", WriteOptions(manager="two"))
    owned = {e["manager"]: e["fieldsV1"] for e in managed_fields.entries_of(second)}
    assert owned == {"one": {"f:data": {".": {}, "f:b": {}}}, "two": {"f:data": {"f:a": {}}}}


def test_a_pod_may_not_move_nor_get_more_time() -> None:
    live = admit(kinds.POD, pod(activeDeadlineSeconds=100))
    for change, text in (
        ({"nodeName": "x"}, "pod updates may not change fields other than"),
        ({"activeDeadlineSeconds": 200}, "must be less than or equal to previous value"),
        ({"activeDeadlineSeconds": None}, "must not update from a positive integer to nil value"),
    ):
        with pytest.raises(ApiError, match=text):
            AdmissionChain().update(kinds.POD, live, {**live, "spec": {**live["spec"], **change}}, "", WriteOptions())
    status = {**live["status"], "podIP": "nonsense"}
    with pytest.raises(ApiError, match=r"status.podIPs.0.: Invalid value"):
        AdmissionChain().update(kinds.POD, live, {**live, "status": status}, "status", WriteOptions())


def test_a_claim_does_not_grow_and_a_node_keeps_its_provider() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    live = admit(kinds.PERSISTENT_VOLUME_CLAIM, {"spec": spec})
    more = {**live, "spec": {**live["spec"], "resources": {"requests": {"storage": "2Gi"}}}}
    with pytest.raises(ApiError, match="spec is immutable after creation"):
        AdmissionChain().update(kinds.PERSISTENT_VOLUME_CLAIM, live, more, "", WriteOptions())
    bound = {"status": {"phase": "Bound"}}
    with pytest.raises(ApiError, match="only dynamically provisioned pvc can be resized"):
        AdmissionChain().update(kinds.PERSISTENT_VOLUME_CLAIM, {**live, **bound}, {**more, **bound}, "", WriteOptions())
    node = admit(kinds.NODE, {"spec": {"providerID": "a"}})
    with pytest.raises(ApiError, match="may not change providerID"):
        AdmissionChain().update(kinds.NODE, node, {**node, "spec": {"providerID": "b"}}, "", WriteOptions())


def test_times_that_are_not_known_and_specs_that_are_empty_are_written() -> None:
    event = admit(kinds.EVENT, {"involvedObject": {"namespace": "n"}, "reason": "R"})
    assert {event[key] for key in ("eventTime", "firstTimestamp", "lastTimestamp")} == {None}
    assert admit(kinds.LEASE, {})["spec"] == {}


def test_apply_keeps_lists_by_key() -> None:
    patches = Patcher(clock=lambda: 0.0)
    live = admit(kinds.POD, pod(), manager="creator")
    config = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]},
    }  # fmt: skip
    made = patches.apply(kinds.POD, live, config, "apply", WriteOptions(manager="m"))
    container = made["spec"]["containers"][0]
    assert (container["image"], container["env"]) == ("x", [{"name": "A", "value": "1"}])
    shorter = {**config, "spec": {"containers": [{"name": "c"}]}}
    again = patches.apply(kinds.POD, made, shorter, "apply", WriteOptions(manager="m"))
    assert not again["spec"]["containers"][0].get("env")


def test_kubectl_goes_over_to_server_side_apply_without_a_conflict() -> None:
    note = "kubectl.kubernetes.io/last-applied-configuration"
    before = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}}
    body = {"data": {"a": "1", "b": "1"}, "metadata": {"annotations": {note: json.dumps(before)}}}
    live = admit(kinds.CONFIG_MAP, body, manager="kubectl-client-side-apply")
    config = {**before, "metadata": {"name": "x", "namespace": "n"}, "data": {"a": "2"}}
    patches = Patcher(clock=lambda: 0.0)
    made = patches.apply(kinds.CONFIG_MAP, live, config, "apply", WriteOptions(manager="kubectl"))
    assert made["data"] == {"a": "2", "b": "1"}
    assert json.loads(made["metadata"]["annotations"][note])["data"] == {"a": "2"}, "the way back stays open"
    for wanted, manager in (({"a": "3"}, "another"), ({"b": "2"}, "kubectl")):  # not its own, not by kubectl
        with pytest.raises(ApiError, match="Apply failed with 1 conflict"):
            patches.apply(kinds.CONFIG_MAP, live, {**config, "data": wanted}, "apply", WriteOptions(manager=manager))


def test_an_applied_list_names_nothing_twice() -> None:
    live = admit(kinds.POD, pod(), manager="creator")
    config = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "n"},
        "spec": {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "y"}]},
    }  # fmt: skip
    held = {**config, "metadata": {"name": "x", "namespace": "n", "finalizers": ["a/b", "a/b"]}, "spec": {}}
    for applied, text in (
        (config, '.spec.containers: duplicate entries for key [name="c"]'),
        (held, '.metadata.finalizers: duplicate entries for key [="a/b"]'),
    ):
        with pytest.raises(ApiError) as caught:
            Patcher(clock=lambda: 0.0).apply(kinds.POD, live, applied, "apply", WriteOptions(manager="m"))
        assert caught.value.message == f"failed to create typed patch object (n/x; /v1, Kind=Pod): {text}"
