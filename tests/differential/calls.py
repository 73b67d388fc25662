"""Random histories of raw requests to the API itself, as steps that can be played on any server.

A step is a method, a path, a query, a body and the forms of both. In bodies and queries `$rv`, `$old`, `$uid` and
`$token` stand for what the server being asked has answered before; `$object` for the object as it is, changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

Json = Any
JSON = "application/json"
MEDIA = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
FORMS = (
    *[JSON] * 10,
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
)
NAMES = ("a", "b")


@dataclass(frozen=True)
class Sort:
    """What can be done to the objects of one kind."""

    api: str
    kind: str
    plural: str
    plain: dict[str, Json]
    edits: tuple[dict[str, Json], ...]
    """Parts that an object is made with, patched with, applied with."""
    steps: tuple[dict[str, Json], ...] = ()
    """Steps of a JSON patch."""
    states: tuple[Json, ...] = ()
    """What its status can be."""
    namespaced: bool = True
    scaled: bool = False

    def path(self, name: str = "") -> str:
        root = f"/apis/{self.api}" if "/" in self.api else f"/api/{self.api}"
        where = f"{root}/namespaces/{{ns}}/{self.plural}" if self.namespaced else f"{root}/{self.plural}"
        return f"{where}/{self.named(name)}" if name else where

    def named(self, name: str) -> str:
        return name if self.namespaced else f"{{ns}}-{name}"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    body: Json = None
    media: str = JSON
    accept: str = JSON

    def text(self) -> str:
        query = "&".join(f"{k}={v}" for k, v in self.query.items())
        return f"{self.method} {self.path}?{query} {self.media} → {self.accept} {self.body}"


_CONTAINER = {"name": "main", "image": "example.test/none:1"}
_WORKER = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "example.test/none:1"}]}}}
_MASTER = {"pytorchReplicaSpecs": {"Master": {**_WORKER, "restartPolicy": "OnFailure"}}}
_MOMENT = "2126-01-02T03:04:05Z"
_CONDITION = {"type": "Ready", "status": "True", "lastTransitionTime": _MOMENT}

SORTS: tuple[Sort, ...] = (
    Sort("v1", "ConfigMap", "configmaps", {"data": {"x": "1"}}, (
        {"data": {"x": "2"}}, {"data": {"y": "1", "x": None}}, {"data": None}, {"data": {"x": 1}}, {"data": {"A b": "c"}},
        {"binaryData": {"z": "AA=="}}, {"binaryData": {"x": "?"}}, {"immutable": True}, {"immutable": False}, {"colour": "red"}, {"data": {}},
        {"data": {"y": "2"}}, {"binaryData": None}, {"data": {"x": ""}},
    ), ({"op": "replace", "path": "/data/x", "value": "3"}, {"op": "remove", "path": "/data/x"}, {"op": "add", "path": "/data/q", "value": 5},
        {"op": "add", "path": "/colour", "value": "red"})),
    Sort("v1", "Secret", "secrets", {"data": {"x": "AA=="}}, (
        {"stringData": {"y": "text"}}, {"data": {"x": None}}, {"data": {"x": "no!"}}, {"type": "example.test/other"}, {"immutable": True},
        {"stringData": {"y": "else"}}, {"type": "kubernetes.io/basic-auth"}, {"data": {"x": "AQ=="}}, {"data": {"x": ""}},
    ), ({"op": "add", "path": "/stringData", "value": {"k": "v"}}, {"op": "replace", "path": "/type", "value": "b"})),
    Sort("v1", "Service", "services", {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}}, (
        {"spec": {"ports": [{"port": 81, "name": "q"}]}}, {"spec": {"ports": [{"port": 80, "name": "p"}, {"port": 443, "name": "tls", "targetPort": "https"}]}},
        {"spec": {"selector": {"c": "d"}}}, {"spec": {"selector": None}}, {"spec": {"ports": [{"port": 0}]}}, {"spec": {"publishNotReadyAddresses": True}},
        {"spec": {"sessionAffinity": "ClientIP"}}, {"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}}, {"spec": {"ports": None}},
        {"spec": {"internalTrafficPolicy": "Local"}}, {"spec": {"ipFamilyPolicy": "SingleStack"}}, {"spec": {"sessionAffinity": "Never"}},
        {"spec": {"ports": [{"port": 80, "$patch": "delete"}]}}, {"spec": {"trafficDistribution": "PreferClose"}},
    ), ({"op": "add", "path": "/spec/ports/-", "value": {"port": 90, "name": "r"}}, {"op": "remove", "path": "/spec/ports/0"},
        {"op": "replace", "path": "/spec/ports/0/port", "value": 8080}),
        ({"conditions": [_CONDITION]}, {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}})),
    Sort("v1", "PersistentVolumeClaim", "persistentvolumeclaims",
         {"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}}, (
        {"spec": {"accessModes": ["ReadWriteMany"]}}, {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, {"spec": {"resources": {"requests": {"storage": "1024Mi"}}}},
        {"spec": {"storageClassName": "other"}}, {"spec": {"volumeMode": "Block"}}, {"spec": {"accessModes": ["Sometimes"]}}, {"spec": {"resources": {"requests": {"storage": "-1"}}}},
        {"spec": {"resources": {"requests": {"storage": "many"}}}}, {"spec": {"selector": {"matchLabels": {"a": "b"}}}}, {"spec": {"accessModes": None}},
    ), ({"op": "replace", "path": "/spec/resources/requests/storage", "value": "3Gi"},), ({"phase": "Bound", "capacity": {"storage": "1Gi"}}, {"phase": "Pending"})),
    Sort("coordination.k8s.io/v1", "Lease", "leases", {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}, (
        {"spec": {"holderIdentity": "you"}}, {"spec": {"leaseDurationSeconds": 0}}, {"spec": {"renewTime": "2126-01-02T03:04:05.000006Z"}},
        {"spec": {"acquireTime": _MOMENT}}, {"spec": {"leaseTransitions": -1}}, {"spec": {"leaseTransitions": 2}}, {"spec": None}, {"spec": {"holderIdentity": None}},
        {"spec": {"holderIdentity": ""}}, {"spec": {"renewTime": "noon"}}, {"spec": {"leaseDurationSeconds": "15"}}, {"spec": {"leaseDurationSeconds": 15.5}},
    ), ({"op": "replace", "path": "/spec/holderIdentity", "value": "x"}, {"op": "remove", "path": "/spec/leaseDurationSeconds"})),
    Sort("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", {"value": 5}, (
        {"value": 6}, {"description": "some"}, {"preemptionPolicy": "Never"}, {"preemptionPolicy": "Often"}, {"value": 2000000000}, {"description": None},
        {"globalDefault": False}, {"value": None},
    ), ({"op": "replace", "path": "/value", "value": 7}, {"op": "replace", "path": "/description", "value": "s"}), (), False),
    Sort("v1", "ServiceAccount", "serviceaccounts", {}, (
        {"secrets": [{"name": "s"}]}, {"imagePullSecrets": [{"name": "i"}, {"name": "j"}]}, {"automountServiceAccountToken": False}, {"secrets": None},
        {"imagePullSecrets": [{"name": "i"}]}, {"secrets": [{"name": "t", "kind": "Secret"}]}, {"imagePullSecrets": [{"$patch": "delete", "name": "i"}]},
        {"automountServiceAccountToken": "yes"},
    ), ({"op": "add", "path": "/secrets", "value": [{"name": "z"}]}, {"op": "remove", "path": "/imagePullSecrets/0"})),
    Sort("v1", "Pod", "pods", {"spec": {"automountServiceAccountToken": False, "containers": [_CONTAINER]}}, (
        {"spec": {"containers": [{"name": "main", "image": "example.test/none:2"}]}}, {"spec": {"containers": [_CONTAINER, {"name": "two", "image": "x"}]}},
        {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}, {"spec": {"activeDeadlineSeconds": 50}}, {"spec": {"nodeSelector": {"a": "b"}}},
        {"spec": {"schedulerName": "other"}}, {"spec": {"containers": [{"name": "main", "image": "example.test/none:1", "env": [{"name": "A", "value": "1"}]}]}},
        {"spec": {"containers": [{**_CONTAINER, "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}}}]}}, {"spec": {"restartPolicy": "Never"}},
        {"spec": {"containers": None}}, {"spec": {"schedulingGates": [{"name": "example.test/g"}]}}, {"spec": {"terminationGracePeriodSeconds": 5}},
        {"spec": {"containers": [{**_CONTAINER, "ports": [{"containerPort": 80}]}]}}, {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
    ), ({"op": "replace", "path": "/spec/containers/0/image", "value": "x:3"}, {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "z", "operator": "Exists"}},
        {"op": "remove", "path": "/spec/schedulingGates"}),
        ({"conditions": [{"type": "example.test/a", "status": "True"}]}, {"phase": "Running"}, {"reason": "Because", "message": "so"},
         {"conditions": [{"type": "example.test/a", "status": "False"}, {"type": "example.test/b", "status": "Unknown"}]}, {"podIP": "10.0.0.9"}, {"conditions": None})),
    Sort("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", {"spec": {"pytorchReplicaSpecs": {"Worker": _WORKER}}}, (
        {"spec": {"pytorchReplicaSpecs": {"Worker": {**_WORKER, "replicas": 2}}}}, {"spec": _MASTER}, {"spec": {"runPolicy": {"suspend": True}}},
        {"spec": {"runPolicy": {"cleanPodPolicy": "None", "backoffLimit": 3}}}, {"spec": {"nprocPerNode": "2"}}, {"spec": {"colour": "red"}},
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": "two"}}}}, {"spec": {"runPolicy": None}}, {"spec": {"runPolicy": {"backoffLimit": 1.5}}},
        {"status": {"startTime": _MOMENT}}, {"spec": {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}},
    ), ({"op": "replace", "path": "/spec/pytorchReplicaSpecs/Worker/replicas", "value": 3}, {"op": "add", "path": "/spec/colour", "value": 1}),
        ({"replicaStatuses": {"Worker": {"active": 1, "selector": "a=b"}}, "conditions": []}, {"conditions": [{"type": "Created", "status": "True"}]},
         {"startTime": "noon"}, {"conditions": [{"type": "Created"}]}), scaled=True),
)  # fmt: skip
METADATA: tuple[dict[str, Json], ...] = (
    {"labels": {"l": "1"}}, {"labels": {"l": "2", "m": "x"}}, {"labels": {"l": None}}, {"labels": None}, {"annotations": {"e.test/a": "b"}},
    {"annotations": {"e.test/a": None}}, {"labels": {"l": "a b"}}, {"finalizers": ["e.test/a"]}, {"finalizers": ["e.test/a", "e.test/b"]}, {"finalizers": None},
    {"finalizers": []}, {"name": None}, {"name": "zz"}, {"generation": 7}, {"creationTimestamp": None}, {"creationTimestamp": _MOMENT}, {"uid": "$uid"},
    {"uid": "other"}, {"resourceVersion": "$rv"}, {"resourceVersion": "$old"}, {"resourceVersion": "0"}, {"resourceVersion": ""}, {"resourceVersion": None},
    {"deletionTimestamp": None}, {"deletionTimestamp": _MOMENT}, {"deletionGracePeriodSeconds": 3}, {"selfLink": "/x"}, {"generateName": "g-"},
    {"managedFields": []}, {"managedFields": [{}]}, {"managedFields": None}, {"namespace": None}, {"namespace": "elsewhere"}, {"uid": ""}, {"colour": "red"},
    {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "$uid"}]}, {"ownerReferences": None}, {"labels": {}}, {"annotations": {}},
)  # fmt: skip
STEPS: tuple[dict[str, Json], ...] = (
    {"op": "add", "path": "/metadata/labels", "value": {"l": "3"}}, {"op": "replace", "path": "/metadata/labels/l", "value": "4"},
    {"op": "test", "path": "/metadata/labels/l", "value": "1"}, {"op": "remove", "path": "/metadata/labels"}, {"op": "remove", "path": "/metadata/nothing"},
    {"op": "copy", "from": "/metadata/name", "path": "/metadata/annotations"}, {"op": "add", "path": "/metadata/finalizers", "value": ["e.test/a"]},
    {"op": "remove", "path": "/metadata/finalizers"}, {"op": "test", "path": "/metadata/resourceVersion", "value": "$rv"}, {"op": "move", "from": "/metadata/labels", "path": "/metadata/annotations"},
    {"op": "remove", "path": "/metadata/name"}, {"op": "add", "path": "/metadata/annotations", "value": {"e.test/a": "c"}}, {"op": "remove", "path": "/metadata/managedFields"},
    {"op": "remove", "path": "/metadata/resourceVersion"}, {"op": "remove", "path": "/metadata/uid"}, {"op": "replace", "path": "/metadata/labels", "value": None},
)  # fmt: skip


def chance(dice: Random, share: float) -> bool:
    return dice.random() < share


def merged(one: Json, two: Json) -> Json:
    """Two parts of an object as one; a null stays and says so."""
    if not isinstance(one, dict) or not isinstance(two, dict):
        return two
    return {**one, **{key: merged(one.get(key), value) for key, value in two.items()}}


def history(seed: int) -> tuple[Request, ...]:
    dice = Random(f"calls {seed}")
    sorts = dice.sample(SORTS, 2)
    first = [_create(dice, sort, "a", plain=True) for sort in sorts]
    return tuple([*first, *(_next(dice, dice.choice(sorts)) for _ in range(dice.randint(8, 16)))])


def sorts_of(requests: tuple[Request, ...]) -> list[Sort]:
    return [s for s in SORTS if any(s.path() in request.path for request in requests)]


def _next(dice: Random, sort: Sort) -> Request:
    moves = dice.choices([move for _, move in MOVES], [weight for weight, _ in MOVES])[0]
    return moves(dice, sort, dice.choice((*NAMES[:1] * 3, *NAMES)))


def _options(dice: Random) -> dict[str, str]:
    found: dict[str, str] = {}
    if chance(dice, 0.3):
        found["fieldManager"] = dice.choice(("one", "two"))
    if chance(dice, 0.3):
        found["fieldValidation"] = dice.choice(("Strict", "Warn", "Ignore"))
    if chance(dice, 0.1):
        found["dryRun"] = "All"
    return found


def _part(dice: Random, sort: Sort, share: float = 0.45) -> dict[str, Json]:
    """Something to change: of the kind's own, or of the metadata that all have."""
    own = dice.choice(sort.edits) if sort.edits else {}
    meta = {"metadata": dice.choice(METADATA)}
    if chance(dice, 0.12):
        return merged(own, meta)  # type: ignore[no-any-return]
    return meta if chance(dice, share) else own


def _said(value: Json) -> Json:
    """Without nulls and texts that are no times: what a configuration means by them is not ours to know."""
    if not isinstance(value, dict):
        return value
    return {k: _said(v) for k, v in value.items() if v not in (None, "noon", "?", "no!")}


def _create(dice: Random, sort: Sort, name: str, *, plain: bool = False) -> Request:
    whole = {"apiVersion": sort.api, "kind": sort.kind, "metadata": {"name": sort.named(name)}, **sort.plain}
    if plain:
        return Request("POST", sort.path(), body=whole)
    if chance(dice, 0.05):
        whole["metadata"] = {"generateName": sort.named("g-")}
        return Request("POST", sort.path(), {"dryRun": "All"}, whole)
    return Request("POST", sort.path(), _options(dice), merged(whole, _part(dice, sort)), accept=dice.choice(FORMS))


def _replace(dice: Random, sort: Sort, name: str) -> Request:
    body = {"$object": _part(dice, sort)}
    if chance(dice, 0.3):
        body["$object"] = merged({"metadata": {"resourceVersion": dice.choice((None, "$old"))}}, body["$object"])
    return Request("PUT", sort.path(name), _options(dice), body, accept=dice.choice(FORMS))


def _merge(dice: Random, sort: Sort, name: str) -> Request:
    way = dice.choice(("merge", "strategic"))
    return Request("PATCH", sort.path(name), _options(dice), _part(dice, sort), MEDIA[way], dice.choice(FORMS))


def _steps(dice: Random, sort: Sort, name: str) -> Request:
    body = [dice.choice((*STEPS, *sort.steps * 3)) for _ in range(dice.choice((1, 1, 2)))]
    return Request("PATCH", sort.path(name), _options(dice), body, MEDIA["json"], dice.choice(FORMS))


def _apply(dice: Random, sort: Sort, name: str) -> Request:
    query = {**_options(dice), "fieldManager": dice.choice(("one", "two", "kubectl"))}
    if chance(dice, 0.4):
        query["force"] = "true"
    head = {"apiVersion": sort.api, "kind": sort.kind, "metadata": {"name": sort.named(name)}}
    body = merged(merged(head, sort.plain) if chance(dice, 0.6) else head, _part(dice, sort, 0.25))
    body = {k: v for k, v in _said(body).items() if k != "status"}
    return Request("PATCH", sort.path(name), query, body, MEDIA["apply"], dice.choice(FORMS))


def _status(dice: Random, sort: Sort, name: str) -> Request:
    path = sort.path(name) + "/status"
    if not sort.states or chance(dice, 0.1):
        return Request("GET", path)
    state = {"status": dice.choice(sort.states)}
    state = merged(state, _part(dice, sort)) if chance(dice, 0.3) else state
    way = dice.choice(("put", "merge", "strategic", "apply"))
    if way == "put":
        return Request("PUT", path, _options(dice), {"$object": state})
    query = _options(dice)
    if way == "apply":
        state = _said(state)
        state = merged({"apiVersion": sort.api, "kind": sort.kind, "metadata": {"name": sort.named(name)}}, state)
        query = {**query, "fieldManager": dice.choice(("one", "two"))}
    return Request("PATCH", path, query, state, MEDIA[way])


def _scale(dice: Random, sort: Sort, name: str) -> Request:
    if not sort.scaled:
        return _merge(dice, sort, name)
    path, count = sort.path(name) + "/scale", dice.choice((0, 1, 2, 2, 5, -1))
    if chance(dice, 0.3):
        return Request("GET", path)
    if chance(dice, 0.4):
        body = {"$object": {"spec": {"replicas": count}}}
        return Request("PUT", path, _options(dice), body)
    return Request("PATCH", path, _options(dice), {"spec": {"replicas": count}}, MEDIA["merge"])


def _delete(dice: Random, sort: Sort, name: str) -> Request:
    options: dict[str, Json] = {}
    if chance(dice, 0.35):
        what = dice.choice(({"uid": "$uid"}, {"uid": "other"}, {"resourceVersion": "$rv"}, {"resourceVersion": "$old"}))
        options["preconditions"] = what
    if chance(dice, 0.3):
        options["gracePeriodSeconds"] = dice.choice((0, 5, -1))
    if chance(dice, 0.2):
        options["propagationPolicy"] = dice.choice(("Background", "Background", "Sideways"))
    query = {"dryRun": "All"} if not options and chance(dice, 0.15) else {}  # with a body, the query says nothing
    body = {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None
    return Request("DELETE", sort.path(name), query, body, accept=dice.choice(FORMS))


def _delete_all(dice: Random, sort: Sort, name: str) -> Request:
    if not sort.namespaced:
        return _delete(dice, sort, name)
    selector = dice.choice(
        ({"labelSelector": "l=1"}, {"fieldSelector": "metadata.name=a"}, {"labelSelector": "l notin (2), l"})
    )
    return Request("DELETE", sort.path(), selector)


def _get(dice: Random, sort: Sort, name: str) -> Request:
    query = dice.choice(({}, {}, {"resourceVersion": "0"}, {"resourceVersion": "$rv"}))
    return Request("GET", sort.path(name), query, accept=dice.choice((JSON, *FORMS[-2:])))


def _list(dice: Random, sort: Sort, name: str) -> Request:
    if not sort.namespaced:
        return _get(dice, sort, name)
    query = dict(dice.choice((
        {}, {"limit": "1"}, {"limit": "1", "continue": "$token"}, {"resourceVersion": "0"}, {"resourceVersion": "$rv", "resourceVersionMatch": "Exact"},
        {"resourceVersion": "$rv"}, {"resourceVersion": "$rv", "resourceVersionMatch": "NotOlderThan"}, {"resourceVersionMatch": "Exact"}, {"fieldSelector": "spec.x=y"},
        {"resourceVersion": "0", "resourceVersionMatch": "Exact"}, {"fieldSelector": "metadata.name!=a"}, {"labelSelector": "l in (1,3)"}, {"labelSelector": "l="},
        {"limit": "1", "resourceVersion": "$rv"}, {"limit": "1", "resourceVersion": "$rv", "resourceVersionMatch": "Exact"},
    )))  # fmt: skip
    if query.get("limit"):
        query["labelSelector"] = "l"  # what the servers make themselves is not counted
    form = dice.choice(FORMS).replace("PartialObjectMetadata", "PartialObjectMetadataList")
    return Request("GET", sort.path(), query, accept=form)


Move = Callable[[Random, Sort, str], Request]
MOVES: tuple[tuple[int, Move], ...] = (
    (9, _create), (14, _replace), (18, _merge), (12, _steps), (22, _apply), (9, _status), (4, _scale), (10, _delete),
    (3, _delete_all), (4, _get), (6, _list),
)  # fmt: skip
