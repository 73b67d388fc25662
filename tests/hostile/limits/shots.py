"""Valid objects near every limit, and requests that carry them: drawn from the table of types by a seed.

A shot is one list, map or string of one kind, filled until the object is near what may be stored, or with a drawn number of
entries; it comes as each of the verbs that carry objects. Beside these stand the shapes that were found to be dear once.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from rowlock import kinds
from rowlock.apiserver.schema import types
from rowlock.apiserver.schema.types import Schema
from rowlock.kinds import Kind

SPACE = "near-limits"
OBJECT_BYTES = 1_400_000  # a little less than what may be stored
COUNTS = (100, 1_000, 5_000, 10_000, 30_000)
JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)  # fmt: skip
Value = Any


@dataclass(frozen=True)
class Shot:
    """One request; `what` says which limit it is near."""

    what: str
    verb: str
    path: str
    body: Value = None
    media: str = "application/json"
    user: str = ""
    """Who asks; "" = the owner."""


def collection(kind: Kind, space: str = SPACE) -> str:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{base}/namespaces/{space}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"


# ---------------------------------------------------------------- small valid objects

POD_SPEC: dict[str, Value] = {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "host", "command": ["true"]}],
}
_TEMPLATE = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [{"name": "main", "image": "host", "command": ["true"]}]}}}  # fmt: skip
_RULES = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
_SUBJECT = {"kind": "User", "name": "somebody", "apiGroup": "rbac.authorization.k8s.io"}
_ROLE_REF = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}


def _job(kind: Kind, container: str, replica: str) -> dict[str, Value]:
    one = json.loads(json.dumps(_TEMPLATE))
    one["template"]["spec"]["containers"][0]["name"] = container
    field = {"MPIJob": "mpi", "TFJob": "tf", "XGBoostJob": "xgb", "PaddleJob": "paddle", "JAXJob": "jax"}.get(
        kind.name, "pytorch"
    )
    return {"spec": {"runPolicy": {"suspend": True}, f"{field}ReplicaSpecs": {replica: one}}}


SMALL: dict[Kind, dict[str, Value]] = {
    kinds.POD: {"spec": POD_SPEC},
    kinds.SERVICE: {"spec": {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 80}]}},
    kinds.CONFIG_MAP: {"data": {"k": "v"}},
    kinds.SECRET: {"data": {"k": "dg=="}},
    kinds.SERVICE_ACCOUNT: {},
    kinds.PERSISTENT_VOLUME_CLAIM: {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    kinds.RESOURCE_QUOTA: {"spec": {"hard": {"count/events": "100000"}}},
    kinds.LEASE: {"spec": {"holderIdentity": "x"}},
    kinds.ROLE: _RULES,
    kinds.CLUSTER_ROLE: _RULES,
    kinds.ROLE_BINDING: {"roleRef": _ROLE_REF, "subjects": [_SUBJECT]},
    kinds.PYTORCHJOB: _job(kinds.PYTORCHJOB, "pytorch", "Worker"),
    kinds.TFJOB: _job(kinds.TFJOB, "tensorflow", "Worker"),
    kinds.MPIJOB: _job(kinds.MPIJOB, "mpi", "Launcher"),
    kinds.POD_GROUP: {"spec": {"minMember": 1, "queue": "near-limits"}},
}


def small(kind: Kind, name: str) -> dict[str, Value]:
    """A valid object of the kind."""
    made: dict[str, Value] = json.loads(json.dumps(SMALL[kind]))
    meta = {"name": name} | ({"namespace": SPACE} if kind.namespaced else {})
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **made}


# ---------------------------------------------------------------- places that can be filled

Path = tuple[str | int, ...]


def places(kind: Kind, depth: int = 9) -> list[tuple[Path, Schema]]:
    """Each list, map and string of the kind's objects that a client may fill, in a spec or in the metadata."""
    root, found = types.resolve_ref(types.schema_of(kind)), list[tuple[Path, Schema]]()
    for key, node in (root.get("properties") or {}).items():
        if key == "metadata":
            for name in ("annotations", "labels", "finalizers", "ownerReferences"):
                child = types.field_schema(types.schema(types.META), name)
                assert child is not None
                found.append((("metadata", name), child))
        elif key not in ("status", "apiVersion", "kind"):
            _collect(types.resolve_ref(node), (key,), depth, found)
    return found


def _collect(node: Schema, path: Path, depth: int, found: list[tuple[Path, Schema]]) -> None:
    kind = node.get("type")
    if depth <= 0:
        return
    if kind == "array":
        found.append((path, node))
        _collect(types.item_schema(node), (*path, 0), depth - 1, found)
    elif types.is_map(node):
        found.append((path, node))
        _collect(types.resolve_ref(node["additionalProperties"]), (*path, "Worker"), depth - 1, found)
    elif "properties" in node:
        for key, child in node["properties"].items():
            _collect(types.resolve_ref(child), (*path, key), depth - 1, found)
    elif kind == "string" and "enum" not in node and path[-1] not in ("name", "namespace"):
        found.append((path, node))


def entry(dice: Random, node: Schema, number: int, depth: int = 6) -> Value:
    """A plausible small value: what is required, and a name of its own."""
    node = types.resolve_ref(node)
    if node.get("enum"):
        return dice.choice(node["enum"])
    kind = node.get("type")
    if kind == "integer":
        return 1 + number % 60_000
    if kind == "boolean":
        return True
    if kind == "number":
        return 1
    if kind == "array":
        return [entry(dice, types.item_schema(node), number, depth - 1)] if depth > 0 else []
    if types.is_map(node):
        return {f"k{number}": entry(dice, node["additionalProperties"], number, depth - 1)} if depth > 0 else {}
    if "properties" in node:
        wanted = {*(node.get("required") or ()), *(k for k in _IDENTITIES if k in node["properties"])}
        return {k: entry(dice, node["properties"][k], number, depth - 1) for k in sorted(wanted)} if depth > 0 else {}
    return f"n{number}"


_IDENTITIES = ("name", "key", "mountPath", "path", "uid", "operator", "containerPort", "ip", "topologyKey")
_WORDS = {"operator": "Exists", "mountPath": "/m{n}", "path": "p{n}", "ip": "10.1.{a}.{b}", "image": "host"}


def _polish(value: Value, number: int) -> Value:
    """The words that some fields want."""
    if isinstance(value, dict):
        return {
            k: _WORDS[k].format(n=number, a=number // 250 % 250, b=number % 250)
            if k in _WORDS and isinstance(v, str)
            else _polish(v, number)
            for k, v in value.items()
        }
    return [_polish(v, number) for v in value] if isinstance(value, list) else value


def filled(dice: Random, node: Schema, room: int) -> Value:
    """A list, map or string that takes about `room` bytes, or has a drawn number of entries where that is less."""
    if node.get("type") == "string":
        return dice.choice(("x", "$(A)", "a,", "/", "€", '"', "\\", "-", "0")) * (room // 4)
    most, used, number = dice.choice(COUNTS), 0, 0
    entries: list[Value] = []
    item = node["additionalProperties"] if types.is_map(node) else types.item_schema(node)
    same = dice.random() < 0.1
    while number < most and used < room:
        number += 1
        made = _polish(entry(dice, item, 1 if same else number), 1 if same else number)
        entries.append(made)
        used += len(json.dumps(made)) + 12
    if types.is_map(node):
        return {f"k{n}": made for n, made in enumerate(entries)}
    return entries


def put(obj: Value, path: Path, value: Value) -> None:
    """Sets what is at the path, making what leads there."""
    for step, following in itertools.pairwise(path):
        empty: Value = [{}] if following == 0 else {}
        if isinstance(step, int):
            obj = obj[0]
            continue
        if not isinstance(obj.get(step), dict | list):
            obj[step] = empty
            if step == "containers" or step == "initContainers":
                obj[step] = [{"name": "more", "image": "host"}]
        obj = obj[step]
    obj[path[-1]] = value


# ---------------------------------------------------------------- requests


def drawn(seed: str) -> Iterator[Shot]:
    """Shots without end; the same seed gives the same ones."""
    dice, number = Random(seed), 0
    every = {kind: places(kind) for kind in SMALL}
    while True:
        number += 1
        if dice.random() < 0.25:
            yield from dice.choice(KNOWN)(dice, f"k{number}")
            continue
        kind = dice.choice(tuple(SMALL))
        path, node = dice.choice(every[kind])
        yield from carried(dice, kind, f"s{number}", path, node)


def carried(dice: Random, kind: Kind, name: str, path: Path, node: Schema) -> Iterator[Shot]:
    """One place of one kind, filled; by a create, and by what may follow one."""
    room = dice.choice((20_000, 200_000, OBJECT_BYTES))
    if path[:2] == ("metadata", "annotations"):
        room = min(room, 250_000)
    full = small(kind, name)
    value = filled(dice, node, room)
    put(full, path, value)
    size = len(value) if isinstance(value, dict | list) else len(str(value))
    what = f"{kind.name} {'.'.join(map(str, path))} of {size}"
    dry, at = dice.choice(("", "?dryRun=All")), collection(kind)
    if dice.random() < 0.5:
        yield Shot(f"create {what}{dry}", "POST", at + dry, full)
    else:
        yield Shot(f"create small for {what}", "POST", at, small(kind, name))
    patch: dict[str, Value] = {}
    put(patch, path, value)
    way = dice.choice(("put", MERGE, STRATEGIC, APPLY, JSON_PATCH))
    if way == "put":
        yield Shot(f"put {what}{dry}", "PUT", f"{at}/{name}{dry}", full)
    elif way == JSON_PATCH:
        pointer = "/" + "/".join(map(str, path))
        yield Shot(
            f"json patch {what}{dry}",
            "PATCH",
            f"{at}/{name}{dry}",
            [{"op": "add", "path": pointer, "value": value}],
            way,
        )
    elif way == APPLY:
        query = f"?fieldManager=near&force=true{dry.replace('?', '&')}"
        yield Shot(f"apply {what}{dry}", "PATCH", f"{at}/{name}{query}", full, way)
    else:
        yield Shot(f"{way.split('/')[1]} {what}{dry}", "PATCH", f"{at}/{name}{dry}", patch, way)
    yield Shot(f"list after {what}", "GET", at)
    yield Shot(
        f"delete {what}",
        "DELETE",
        f"{at}/{name}",
        {"propagationPolicy": dice.choice(("Background", "Foreground", "Orphan"))},
    )


def _config_map(name: str) -> dict[str, Value]:
    return small(kinds.CONFIG_MAP, name)


def owners(dice: Random, name: str) -> Iterator[Shot]:
    """One object of thousands of owners that do not exist."""
    count = dice.choice((500, 2_000, 9_000))
    made = _config_map(name)
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"n{n}", "uid": f"u{n}"} for n in range(count)
    ]
    yield Shot(f"{count} owners", "POST", collection(kinds.CONFIG_MAP), made)
    yield Shot("list after owners", "GET", collection(kinds.CONFIG_MAP))


def list_operations(dice: Random, name: str) -> Iterator[Shot]:
    """A JSON patch of as many operations as are taken, on a long list or a large map."""
    count, at = 10_000, f"{collection(kinds.CONFIG_MAP)}/{name}"
    made = _config_map(name)
    made["metadata"]["finalizers"] = [f"a/f{n}" for n in range(20_000)]
    made["data"] = {f"k{n}": "" for n in range(10_000)}
    yield Shot("create a long list", "POST", collection(kinds.CONFIG_MAP), made)
    for dry in ("?dryRun=All", ""):
        way = dice.choice(("replace", "insert", "append", "key", "copy", "move", "test"))
        operation: Callable[[int], dict[str, Value]] = {
            "replace": lambda n: {"op": "replace", "path": f"/metadata/finalizers/{n}", "value": f"b/g{n}"},
            "insert": lambda n: {"op": "add", "path": "/metadata/finalizers/0", "value": f"b/g{n}"},
            "append": lambda n: {"op": "add", "path": "/metadata/finalizers/-", "value": f"b/g{n}"},
            "key": lambda n: {"op": "add", "path": f"/data/k{n}", "value": ""},
            "copy": lambda n: {"op": "copy", "from": f"/data/k{n}", "path": f"/data/c{n}"},
            "move": lambda n: {"op": "move", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"},
            "test": lambda n: {"op": "test", "path": f"/metadata/finalizers/{n}", "value": f"a/f{n}"},
        }[way]
        yield Shot(
            f"json patch of {count} operations ({way}){dry}",
            "PATCH",
            at + dry,
            [operation(n) for n in range(count)],
            JSON_PATCH,
        )


def affinity(dice: Random, name: str) -> Iterator[Shot]:
    """Thousands of terms of dozens of pods."""
    terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "In", "values": ["x"]}]} for n in range(4_000)]
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    preferred = [{"weight": 1, "preference": term} for term in terms]
    pods = [
        {"weight": 1, "podAffinityTerm": {"topologyKey": f"t{n}", "labelSelector": {"matchLabels": {"a": "x"}}}}
        for n in range(4_000)
    ]
    chosen = dice.choice(
        (
            node,
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
            {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": pods}},
        )
    )
    for n in range(12):
        made = small(kinds.POD, f"{name}-{n}")
        yield Shot(
            f"4,000 terms of {next(iter(chosen))}",
            "POST",
            collection(kinds.POD),
            {**made, "spec": {**POD_SPEC, "affinity": chosen}},
        )


def role(dice: Random, name: str) -> Iterator[Shot]:
    """A role of many rules that somebody has, and what that user asks and grants."""
    way = dice.choice(("groups", "names", "verbs", "product"))
    rules = [
        {
            "apiGroups": [f"g{n}" if way == "groups" else ""],
            "resources": ["pods"],
            "verbs": [f"v{n}" if way == "verbs" else "get"],
        }
        | ({"resourceNames": [f"n{n}"]} if way == "names" else {})
        for n in range(12_000)
    ]
    if way == "product":
        many = [f"x{n}" for n in range(3_000)]
        rules = [{"apiGroups": many, "resources": many, "verbs": many}]
    made = {**small(kinds.ROLE, name), "rules": rules}
    yield Shot(f"a role of many rules ({way})", "POST", collection(kinds.ROLE), made)
    binding = small(kinds.ROLE_BINDING, name)
    binding["roleRef"] = {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    yield Shot("a binding to many rules", "POST", collection(kinds.ROLE_BINDING), binding)
    editor = {**small(kinds.ROLE_BINDING, f"{name}-admin"), "roleRef": {**_ROLE_REF, "name": "admin"}}
    yield Shot("a binding to admin", "POST", collection(kinds.ROLE_BINDING), editor)
    for n in range(3):
        yield Shot("what somebody may not", "GET", f"{collection(kinds.LEASE)}/x{n}{dice.random()}", user="somebody")
    yield Shot(
        "all rules of somebody",
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {"spec": {"namespace": SPACE}},
        user="somebody",
    )
    again = {**small(kinds.ROLE, f"{name}-again"), "rules": rules}
    yield Shot(f"somebody grants as many ({way})", "POST", collection(kinds.ROLE), again, user="somebody")
    more = {**again, "rules": [{**rule, "verbs": ["other"]} for rule in rules[:10_000]]}
    yield Shot(f"somebody grants others ({way})", "POST", collection(kinds.ROLE), more, user="somebody")


def downward_files(dice: Random, name: str) -> Iterator[Shot]:
    """One large annotation that thousands of files show."""
    made = small(kinds.POD, name)
    made["metadata"]["annotations"] = {"large": "x" * 250_000}
    items = [{"path": f"f{n}", "fieldRef": {"fieldPath": "metadata.annotations['large']"}} for n in range(2_000)]
    made["spec"]["volumes"] = [{"name": "v", "downwardAPI": {"items": items}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    yield Shot("2,000 files of one annotation", "POST", collection(kinds.POD), made)


def variables(dice: Random, name: str) -> Iterator[Shot]:
    """Variables and arguments that grow."""
    made = small(kinds.POD, name)
    doubles = [{"name": "V", "value": "ab"}, *({"name": "V", "value": "$(V)$(V)"} for _ in range(60))]
    many = [{"name": f"V{n}", "value": "$(V0)$$"} for n in range(20_000)]
    made["spec"]["containers"][0]["env"] = dice.choice((doubles, many))
    yield Shot("variables that grow", "POST", collection(kinds.POD), made)


def volumes(dice: Random, name: str) -> Iterator[Shot]:
    """A config map near its limit that thousands of volumes show, or thousands of mounts of one."""
    large = _config_map(name)
    large["data"] = {"k": "x" * 1_000_000}
    yield Shot("a config map of a megabyte", "POST", collection(kinds.CONFIG_MAP), large)
    made, count = small(kinds.POD, name), dice.choice((50, 2_000))
    made["spec"]["volumes"] = [{"name": f"v{n}", "configMap": {"name": name}} for n in range(count)]
    mounts = [{"name": f"v{n}", "mountPath": f"/m{n}"} for n in range(count)]
    if dice.random() < 0.5:
        made["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
        mounts = [{"name": "v", "mountPath": f"/m{n}", "subPath": f"s{n}"} for n in range(10_000)]
    made["spec"]["containers"][0]["volumeMounts"] = mounts
    yield Shot(f"{len(mounts)} volumes or mounts", "POST", collection(kinds.POD), made)


def containers(dice: Random, name: str) -> Iterator[Shot]:
    """Thousands of containers."""
    made, count = small(kinds.POD, name), dice.choice((100, 1_000))
    made["spec"][dice.choice(("containers", "initContainers"))] = [
        {"name": f"c{n}", "image": "host", "command": ["true"]} for n in range(count)
    ]
    yield Shot(f"{count} containers", "POST", collection(kinds.POD), made)


def selectors(dice: Random, name: str) -> Iterator[Shot]:
    """Selectors as long as a request's head may be."""
    terms = ",".join(f"k{n}!=v" for n in range(5_000))
    yield Shot("5,000 terms of a selector", "GET", f"{collection(kinds.POD)}?labelSelector={terms}")
    values = ",".join(f"v{n}" for n in range(7_000))
    yield Shot("7,000 values of a selector", "GET", f"/api/v1/pods?labelSelector=a+in+({values})")


def submits(dice: Random, name: str) -> Iterator[Shot]:
    """Submits of the REST API with long lists and texts."""
    spec: dict[str, Value] = {"image": "host", "command": "true"}
    way = dice.choice(("variables", "arguments", "command", "labels", "what if"))
    if way == "variables":
        spec["environmentVariables"] = [{"name": f"V{n}", "value": "x" * 100} for n in range(4_900)]
    elif way == "arguments":
        spec["args"] = dice.choice(("a ", "'a' ", "\\ ", "$(A) ")) * 500_000
    elif way == "command":
        spec["command"] = dice.choice(("a ", "'a' ", "\\ ")) * 500_000
    else:
        spec["labels"] = [{"name": f"l{n}", "value": "x"} for n in range(4_900)]
    body = {"name": name, "projectId": SPACE, "clusterId": "rowlock", "spec": spec}
    yield Shot(f"a submit near the limit of {way}", "POST", "/api/v1/workloads/trainings", body)


def own_annotations(dice: Random, name: str) -> Iterator[Shot]:
    """Annotations that we read: each near its limit, on a pod and on a job."""
    kind = dice.choice((kinds.POD, kinds.PYTORCHJOB))
    key = dice.choice((
        "gpu-fraction", "rowlock.dev/devices", "rowlock.dev/directory", "rowlock.dev/shell-environment", "rowlock.dev/limits", "rowlock.dev/max-runtime",
        "rowlock.dev/request", "rowlock.dev/source", "rowlock.dev/workload-id", "kai.scheduler/queue", "pod-group-name",
    ))  # fmt: skip
    made = small(kind, name)
    made["metadata"]["annotations"] = {
        key: dice.choice(("[" * 250_000, "9" * 250_000, '{"a":' * 40_000, "a," * 120_000, "a b " * 60_000))
    }
    yield Shot(f"{kind.name} with {key}", "POST", collection(kind), made)
    yield Shot(f"workloads after {key}", "GET", "/api/v1/workloads")


def services(dice: Random, name: str) -> Iterator[Shot]:
    """A service that selects many pods, with as many ports as fit."""
    made = small(kinds.SERVICE, name)
    made["spec"]["ports"] = [{"name": f"p{n}", "port": n + 1} for n in range(10_000)]
    yield Shot("a service of 10,000 ports", "POST", collection(kinds.SERVICE), made)
    yield Shot("its slices", "GET", f"/apis/discovery.k8s.io/v1/namespaces/{SPACE}/endpointslices")


KNOWN: tuple[Callable[[Random, str], Iterator[Shot]], ...] = (
    owners, list_operations, affinity, role, downward_files, variables, volumes, containers, selectors, submits, own_annotations, services,
)  # fmt: skip
"""Shapes that were found to be dear, and their brothers."""
