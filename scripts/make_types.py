#!/usr/bin/env python3
"""Make `src/rowlock/apiserver/schema/types.json`, the one table of types, from a real API server and the operator's CRDs.

    make_types.py --kubectl BIN --kubeconfig K --crds CRDS.yaml --protos GOMODCACHE/k8s.io/api@V \
        --protos GOMODCACHE/k8s.io/apimachinery@V > src/rowlock/apiserver/schema/types.json

What is taken are facts: names of fields, types, formats, required, enums, defaults, list kinds and merge keys. Prose
is left behind. Sub-schemas that occur in several places of the CRDs (the pod template, above all) are written once and
referred to. One type per line, sorted, so that a new Kubernetes shows as a readable diff. Rerun it where a real API
server can be had (`make real-cluster`); the output is committed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

PREFIX = "#/components/schemas/"
GROUPS = (
    "api/v1", "apis/scheduling.k8s.io/v1", "apis/coordination.k8s.io/v1", "apis/rbac.authorization.k8s.io/v1",
    "apis/autoscaling/v1", "apis/autoscaling/v2", "apis/events.k8s.io/v1", "apis/authorization.k8s.io/v1",
    "apis/authentication.k8s.io/v1", "apis/policy/v1",
)  # fmt: skip
ROOTS = (
    "v1/Namespace", "v1/Node", "v1/Pod", "v1/Service", "v1/Event", "v1/ConfigMap", "v1/Secret", "v1/ServiceAccount",
    "v1/PersistentVolumeClaim", "v1/ResourceQuota", "v1/Binding", "scheduling.k8s.io/v1/PriorityClass",
    "coordination.k8s.io/v1/Lease", "rbac.authorization.k8s.io/v1/Role", "rbac.authorization.k8s.io/v1/RoleBinding",
    "autoscaling/v2/HorizontalPodAutoscaler", "autoscaling/v1/Scale", "events.k8s.io/v1/Event", "policy/v1/Eviction",
    "authorization.k8s.io/v1/SelfSubjectAccessReview", "authorization.k8s.io/v1/SubjectAccessReview",
    "authorization.k8s.io/v1/LocalSubjectAccessReview", "authorization.k8s.io/v1/SelfSubjectRulesReview",
    "authentication.k8s.io/v1/SelfSubjectReview", "authentication.k8s.io/v1/TokenReview",
)  # fmt: skip
DROPPED = {"description", "externalDocs", "x-kubernetes-unions"}
SHARED = 160
"""A CRD's sub-schema longer than this (as JSON) is written once when it occurs twice."""

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

Schema = dict[str, Any]


def bare(schema: Any) -> Any:
    """The schema without prose, with short references, and with `allOf: [ref]` written as the reference itself."""
    if isinstance(schema, list):
        return [bare(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    found: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: bare(v) for name, v in value.items()}
        elif key == "$ref":
            found[key] = str(value).removeprefix(PREFIX)
        elif key == "allOf" and len(value) == 1 and "$ref" in value[0]:
            found["$ref"] = str(value[0]["$ref"]).removeprefix(PREFIX)
        elif key == "default" and value in ({}, "", 0, False):
            continue  # Go's zero values: noise of the generator, not defaults
        elif key not in DROPPED:
            found[key] = bare(value) if key not in ("default", "enum", "required") else value
    return found


def references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*(references(s) for s in schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
    return own.union(*(references(v) for v in schema.values()))


def built_in(fetch: Any) -> tuple[dict[str, Schema], dict[str, str]]:
    """The types that the roots need, and which type each kind is."""
    every: dict[str, Schema] = {}
    kinds: dict[str, str] = {}
    for path in GROUPS:
        for name, schema in fetch(f"/openapi/v3/{path}")["components"]["schemas"].items():
            every.setdefault(name, schema)
            for gvk in schema.get("x-kubernetes-group-version-kind", ()):
                key = "/".join(part for part in (gvk["group"], gvk["version"], gvk["kind"]) if part)
                if key in ROOTS:
                    kinds[key] = name
    wanted, todo = {}, [*kinds.values(), QUANTITY, META]
    for extra in ("DeleteOptions", "Status"):
        todo.append(f"io.k8s.apimachinery.pkg.apis.meta.v1.{extra}")
    while todo:
        name = todo.pop()
        if name not in wanted:
            schema = bare(every[name])
            schema.pop("x-kubernetes-group-version-kind", None)
            wanted[name] = schema
            todo += references(schema)
    return wanted, kinds


def unprosed(schema: Any) -> Any:
    """A CRD's schema without prose; a property may itself be called `description`."""
    if isinstance(schema, list):
        return [unprosed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {n: unprosed(s) for n, s in value.items()} if key == "properties" else unprosed(value)
        for key, value in schema.items()
        if not (key == "description" and isinstance(value, str))
    }


class Sharing:
    """Writes equal sub-schemas of the CRDs once."""

    def __init__(self, schemas: list[Schema]) -> None:
        self.seen: Counter[str] = Counter()
        for schema in schemas:
            self._count(schema)
        self.names: dict[str, str] = {}
        self.types: dict[str, Schema] = {}

    def _count(self, schema: Any) -> None:
        if isinstance(schema, list):
            for item in schema:
                self._count(item)
        elif isinstance(schema, dict):
            if "type" in schema:
                text = json.dumps(schema, sort_keys=True)
                self.seen[text] += 1
                if self.seen[text] > 1:
                    return
            for value in schema.values():
                self._count(value)

    def replace(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self.replace(s) for s in schema]
        if not isinstance(schema, dict):
            return schema
        if isinstance(schema.get("type"), str):
            text = json.dumps(schema, sort_keys=True)
            if self.seen[text] > 1 and len(text) > SHARED:
                if text not in self.names:
                    self.names[text] = f"crd.{len(self.names)}"
                    self.types[self.names[text]] = {k: self.replace(v) for k, v in schema.items()}
                return {"$ref": self.names[text]}
        return {k: self.replace(v) for k, v in schema.items()}


def custom(documents: list[Schema]) -> tuple[dict[str, Schema], dict[str, str]]:
    """The types of the operator's CRDs and of KAI's two, which have no public CRD text here (`spec/kai.md`)."""
    roots: dict[str, Schema] = dict(kai())
    for crd in documents:
        spec = crd["spec"]
        for version in spec["versions"]:
            key = f"{spec['group']}/{version['name']}/{spec['names']['kind']}"
            schema = unprosed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"$ref": META}
            roots[key] = schema
    sharing = Sharing(list(roots.values()))
    types = {key: sharing.replace(schema) for key, schema in roots.items()}
    return {**types, **sharing.types}, {key: key for key in types}


def kai() -> dict[str, Schema]:
    text, number, whole = {"type": "string"}, {"type": "number"}, {"type": "integer", "format": "int32"}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

    def struct(**fields: Schema) -> Schema:
        return {"type": "object", "properties": fields}

    def listed(item: Schema) -> Schema:
        return {"type": "array", "items": item}

    share = struct(quota=number, limit=number, overQuotaWeight=number)
    head = {"apiVersion": text, "kind": text, "metadata": {"$ref": META}}
    queue = struct(
        displayName=text, parentQueue=text, priority=whole, preemptMinRuntime=text, reclaimMinRuntime=text,
        resources=struct(cpu=share, memory=share, gpu=share),
    )  # fmt: skip
    group = struct(
        minMember=whole, minSubGroup=whole, queue=text, priorityClassName=text, preemptibility=text,
        markUnschedulable={"type": "boolean"}, schedulingBackoff=whole, topologyConstraint=anything,
        subGroups=listed(struct(name=text, minMember=whole, minSubGroup=whole, parent=text, topologyConstraint=anything)),
    )  # fmt: skip
    return {
        "scheduling.run.ai/v2/Queue": struct(**head, spec=queue, status=anything),
        "scheduling.run.ai/v2alpha2/PodGroup": struct(**head, spec=group, status=anything),
    }


_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.M | re.S)
_FIELD = re.compile(r"^\s*(?:optional|repeated|required)?\s*(map<[^>]+>|[\w.]+) (\w+) = (\d+);", re.M)


def numbers(folders: list[Path], types: dict[str, Schema]) -> dict[str, dict[str, str]]:
    """Protobuf's field numbers: type → number → JSON name. A field that JSON has inline is `+` and its type."""
    every: dict[str, dict[str, str]] = {}
    for path in sorted(p for folder in folders for p in folder.rglob("generated.proto")):
        text = re.sub(r"//.*", "", path.read_text())
        package = re.search(r"^package (.*);", text, re.M)
        if package:
            for name, body in _MESSAGE.findall(text):
                every[_type_name(package[1], name)] = _fields(package[1], body)
    wanted: dict[str, dict[str, str]] = {}
    for name in [n for n in types if n in every]:
        _number(name, set(types[name].get("properties") or {}), every, wanted)
    return wanted


def _type_name(package: str, name: str) -> str:
    return "io." + package.removeprefix(".").replace("k8s.io", "k8s", 1) + "." + name


def _fields(package: str, body: str) -> dict[str, str]:
    """Number → `name type`, types as the table calls them."""
    found = {}
    for kind, name, number in _FIELD.findall(body):
        if kind.startswith("."):
            space, _, short = kind[1:].rpartition(".")
            kind = _type_name(space, short)
        elif kind[0].isupper():
            kind = _type_name(package, kind)
        found[number] = f"{name} {kind}"
    return found


def _number(name: str, declared: set[str], every: dict[str, dict[str, str]], into: dict[str, dict[str, str]]) -> None:
    line = {}
    for number, text in every[name].items():
        field, _, kind = text.partition(" ")
        if field in declared or not declared:
            line[number] = field
        elif kind in every:
            line[number] = f"+{kind}"
            if kind not in into:
                _number(kind, declared, every, into)
    into[name] = line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubectl", default="kubectl")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--crds", type=Path, required=True)
    parser.add_argument("--protos", type=Path, action="append", default=[])
    given = parser.parse_args()

    def fetch(path: str) -> Any:
        command = [given.kubectl, "--kubeconfig", given.kubeconfig, "get", "--raw", path]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    types, kinds = built_in(fetch)
    more, customs = custom([d for d in yaml.load_all(given.crds.read_text(), loader) if d])
    missing = set(ROOTS) - set(kinds)
    if missing:
        raise SystemExit(f"this API server does not serve {', '.join(sorted(missing))}")
    write({**types, **more}, {**kinds, **customs}, numbers(given.protos, types))


def write(types: dict[str, Schema], kinds: dict[str, str], wire: dict[str, dict[str, str]]) -> None:
    def line(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), sort_keys=True)

    out = ['{"kinds":{']
    out.append(",\n".join(f"{line(key)}:{line(kinds[key])}" for key in sorted(kinds)))
    out.append('},\n"types":{')
    out.append(",\n".join(f"{line(name)}:{line(types[name])}" for name in sorted(types)))
    out.append('},\n"wire":{')
    out.append(",\n".join(f"{line(name)}:{line(wire[name])}" for name in sorted(wire)))
    out.append("}}")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
