"""Valid objects near every limit, drawn from the table of types, and the requests that carry them.

A shot is one list, map or string of one kind, filled until the object is near what may be stored, or with a drawn number of
entries (`draws.py`). Beside these stand the shapes that were found to be dear once (`known.py`).
"""

from __future__ import annotations

import itertools
import json
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
    names_id: bool = False
    """Whether `{id}` in the paths of later shots is the id in its answer."""


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
    kinds.BATCH_JOB: {"spec": {"suspend": True, "template": {"spec": POD_SPEC}}},
    kinds.CRON_JOB: {"spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": POD_SPEC}}}}},
    kinds.JOB_SET: {
        "spec": {
            "suspend": True,
            "replicatedJobs": [{"name": "r", "template": {"spec": {"template": {"spec": POD_SPEC}}}}],
        }
    },
    kinds.TRAIN_JOB: {"spec": {"suspend": True, "runtimeRef": {"name": "torch-distributed"}}},
    kinds.TRAINING_RUNTIME: {
        "spec": {
            "template": {
                "spec": {"replicatedJobs": [{"name": "r", "template": {"spec": {"template": {"spec": POD_SPEC}}}}]}
            }
        }
    },
}


def small(kind: Kind, name: str) -> dict[str, Value]:
    """A valid object of the kind."""
    made: dict[str, Value] = json.loads(json.dumps(SMALL[kind]))
    meta = {"name": name} | ({"namespace": SPACE} if kind.namespaced else {})
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **made}


# ---------------------------------------------------------------- places that can be filled

Path = tuple[str | int, ...]


DEEPEST = 15
"""Of a set's pods: spec, replicatedJobs, its job, its template, its spec, the pod's template, its spec, a container, and what that has."""


def places(kind: Kind, depth: int = DEEPEST) -> list[tuple[Path, Schema]]:
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
