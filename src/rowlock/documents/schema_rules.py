"""CEL rules in the schemas of custom kinds (`x-kubernetes-validations`), evaluated as by kube-apiserver.

There is no CEL interpreter: the table of types has a dozen expressions, and each is implemented in `_RULES` below. A
missing one fails the first test that reads the table. A transition rule (`self == oldSelf`) is evaluated only
if the old object has the field, too; list elements are matched by their map keys. Pure.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.errors import Cause
from rowlock.objects import Object

RULES_KEY = "x-kubernetes-validations"
_MISSING: Any = object()
_TRANSITION = "self == oldSelf"
_POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")
_MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def _has_one_order(spec: Mapping[str, Any]) -> bool:
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    return not (in_order and any("dependsOn" in job for job in spec.get("replicatedJobs") or ()))


def _is_without_namespace(policy: Mapping[str, Any]) -> bool:
    return not any((claim.get("metadata") or {}).get("namespace") for claim in policy.get("templates") or ())


_RULES: dict[str, Callable[[Any], bool]] = {
    "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' && "
    "self.replicatedJobs.exists(x, has(x.dependsOn)))": _has_one_order,
    "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)": _is_without_namespace,
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1": (
        lambda policy: sum(name in policy for name in _POLICIES) <= 1
    ),
    "self >= 1": lambda number: bool(number >= 1),
    "!self.exists(c, c == 'node')": lambda names: "node" not in names,
    "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')": (
        lambda text: not text or _URI.fullmatch(text) is not None
    ),
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": (
        lambda obj: _NAME.fullmatch(obj["metadata"].get("name") or "") is not None
    ),
    "size(self.metadata.name) <= 63": lambda obj: len(obj["metadata"].get("name") or "") <= 63,
    "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']": _MANAGERS.__contains__,
    "has(self.lastUpdatedTime)": lambda status: "lastUpdatedTime" in status,
}


Schema = dict[str, Any]
Resolve = Callable[[Schema], Schema]
"""Returns the schema that a reference stands for, or the schema itself."""


def rule_causes(old: Any, new: Any, node: Schema, resolve: Resolve, path: str = "") -> list[Cause]:
    """One cause for each rule of the schema that the value at `path` breaks. `old`: the previous value, None for a new one."""
    return (
        list(_Check(resolve).visit(_MISSING if old is None else old, new, node, path))
        if _is_ruled(node, resolve)
        else []
    )


_ruled: dict[int, tuple[Schema, bool]] = {}
"""Identity of a schema → the schema, and whether there is a rule in it or below. Schemas are those of the table of types, which stay."""


def _is_ruled(node: Schema, resolve: Resolve) -> bool:
    """Whether a schema has a rule, or one of the schemas below it: most have none, and their values need not be walked."""
    known = _ruled.get(id(node))
    if known is None:
        resolved = resolve(node)
        _ruled[id(node)] = node, True  # for a schema that contains itself, until it is known
        below = [
            *(resolved.get("properties") or {}).values(),
            resolved.get("additionalProperties"),
            resolved.get("items"),
        ]
        is_ruled = RULES_KEY in resolved or any(_is_ruled(each, resolve) for each in below if isinstance(each, dict))
        known = _ruled[id(node)] = node, is_ruled
    return known[1]


@dataclass(frozen=True, slots=True)
class _Check:
    resolve: Resolve

    def visit(self, old: Any, new: Any, node: Schema, path: str) -> Iterator[Cause]:
        node = self.resolve(node)
        for rule in node.get(RULES_KEY) or ():
            is_kept = old == new if rule["rule"] == _TRANSITION else _RULES[rule["rule"]](new)
            if not is_kept and (rule["rule"] != _TRANSITION or old is not _MISSING):
                text = f'Invalid value: "{_json_type(new)}": {rule["message"]}'
                yield Cause("FieldValueInvalid", text, path or "<nil>")
        if isinstance(new, dict):
            declared, more = node.get("properties") or {}, node.get("additionalProperties")
            for key, value in new.items():
                child = declared.get(key, more)
                if isinstance(child, dict) and _is_ruled(child, self.resolve):
                    yield from self.visit(_child(old, key), value, child, f"{path}.{key}" if path else key)
        elif isinstance(new, list) and isinstance(node.get("items"), dict) and _is_ruled(node["items"], self.resolve):
            keys = node.get("x-kubernetes-list-map-keys") or ()
            known = {_identity(one, keys): one for one in old} if keys and isinstance(old, list) else {}
            for index, value in enumerate(new):
                before = known.get(_identity(value, keys), _MISSING) if keys else _MISSING
                yield from self.visit(before, value, node["items"], f"{path}[{index}]")


def _child(value: Any, key: str) -> Any:
    return value.get(key, _MISSING) if isinstance(value, dict) else _MISSING


def _identity(value: Any, keys: list[str]) -> tuple[Any, ...]:
    return tuple(str(value.get(key)) for key in keys) if isinstance(value, dict) else ()


def _json_type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")


def keep_secret_names(account: Object) -> Object:
    """The ServiceAccount with only the names in its `secrets`."""
    secrets = account.get("secrets")
    if not secrets:
        return account
    return {**account, "secrets": [{"name": s["name"]} if s.get("name") else {} for s in secrets]}


def merge_string_data(secret: Object) -> Object:
    """The Secret with its `stringData` merged into `data`, in base64."""
    if "stringData" not in secret:
        return secret
    texts = secret["stringData"]
    data = {**(secret.get("data") or {}), **{k: base64.b64encode(v.encode()).decode() for k, v in texts.items()}}
    return {**{k: v for k, v in secret.items() if k != "stringData"}, "data": data}
