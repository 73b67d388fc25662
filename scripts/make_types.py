#!/usr/bin/env python3
"""Make `types.json`, the one table of types: `make types`. It needs Go and what `make real-cluster` has built.

What is taken are facts: names of fields, types, formats, required, enums, list kinds and merge keys from OpenAPI; from
Go's own structs (`go_facts/main.go`) protobuf numbers, named types, which fields are written even when they are empty,
and the scheme's defaults; from the training operator's CRDs the schemas of its jobs, and from those of JobSet and Kubeflow
Trainer (`--trainer-crds`) theirs. Prose is left behind. Sub-schemas
that occur in several places of the CRDs (the pod template, above all) are written once and referred to. One type per
line, sorted, so that a new Kubernetes (`rowlock.KUBERNETES`) shows as a readable diff.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent / "real_cluster"))

from recipe import MANIFESTS, build, run_program

from rowlock import KUBERNETES
from rowlock.apiserver.schema import structs

PREFIX = "#/components/schemas/"
TABLE = Path(__file__).parent.parent / "src/rowlock/apiserver/schema/types.json"
ROOTS = (
    "v1/Namespace", "v1/Node", "v1/Pod", "v1/Service", "v1/Event", "v1/ConfigMap", "v1/Secret", "v1/ServiceAccount",
    "v1/PersistentVolumeClaim", "v1/ResourceQuota", "v1/Binding", "scheduling.k8s.io/v1/PriorityClass",
    "coordination.k8s.io/v1/Lease", "rbac.authorization.k8s.io/v1/Role", "rbac.authorization.k8s.io/v1/RoleBinding",
    "rbac.authorization.k8s.io/v1/ClusterRole", "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
    "autoscaling/v2/HorizontalPodAutoscaler", "autoscaling/v1/Scale", "batch/v1/CronJob", "batch/v1/Job",
    "events.k8s.io/v1/Event", "policy/v1/Eviction",
    "authorization.k8s.io/v1/SelfSubjectAccessReview", "authorization.k8s.io/v1/SubjectAccessReview",
    "authorization.k8s.io/v1/LocalSubjectAccessReview", "authorization.k8s.io/v1/SelfSubjectRulesReview",
    "authentication.k8s.io/v1/SelfSubjectReview", "authentication.k8s.io/v1/TokenReview",
    "authentication.k8s.io/v1/TokenRequest",
)  # fmt: skip
OPTIONS = ("v1/DeleteOptions", "v1/Status")
"""Types that requests and answers have, and no kind that is served."""

FUNCTIONS = {
    "Container.imagePullPolicy", "EphemeralContainerCommon.imagePullPolicy", "HPAScalingRules.policies",
    "HPAScalingRules.stabilizationWindowSeconds", "JobSpec.backoffLimit", "JobSpec.completionMode", "JobSpec.completions",
    "JobSpec.manualSelector", "JobSpec.parallelism", "JobSpec.podReplacementPolicy", "JobSpec.suspend", "PodSpec.enableServiceLinks", "ServiceSpec.internalTrafficPolicy",
    "VolumeSource.emptyDir",
}  # fmt: skip
"""Defaults that depend on other fields, or on where the struct stands: functions in `schema/defaulting.py`, no rows here. Go says which they are."""
DROPPED = {"description", "externalDocs", "x-kubernetes-unions", "x-kubernetes-group-version-kind"}
SHARED = 160
"""A CRD's sub-schema longer than this (as JSON) is written once when it occurs twice."""
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


class GoFacts:
    """What `go_facts` printed, brought into the table's form."""

    def __init__(self, printed: dict[str, Any]) -> None:
        self.kinds = {kind: name for kind, name in printed["kinds"].items() if kind not in OPTIONS}
        self.types: dict[str, Schema] = {name: bare(schema) for name, schema in printed["schemas"].items()}
        self._structs, self._defaults = printed["structs"], printed["defaults"]
        if unknown := {_short(depends) for depends in printed["depends"]} ^ FUNCTIONS:
            raise SystemExit(f"defaults that depend on other fields and are in one list only: {sorted(unknown)}")
        for name, schema in list(self.types.items()):
            if name in self._structs:
                schema[structs.FIELDS] = self._row(name, schema)
                if defaults := self._defaults_of(name):
                    schema[structs.DEFAULTS] = defaults

    def _row(self, name: str, schema: Schema) -> str:
        """A struct's fields as one text, in the form that `structs` reads."""
        steps = []
        for field in self._structs[name]:
            inline, number = field.get("inline"), field.get("number", "")
            if inline and number:
                self.types.setdefault(inline, {structs.FIELDS: self._row(inline, schema)})
                steps.append(f"{number}:+{inline}")
            if inline:
                continue
            node = (schema.get("properties") or {}).get(field["json"])
            if node is None:
                raise SystemExit(f"{name}.{field['json']} is a field in Go and none in OpenAPI")
            mark = "*" if field.get("pointer") else "!" if field.get("always") else ""
            named = "" if field["go"] == structs.go_type(node) else f"={field['go']}"
            steps.append(f"{number}:{field['json']}{mark}{named}")
        return " ".join(steps)

    def _defaults_of(self, name: str) -> Schema:
        """The defaults of a type, those of its inline parts among them."""
        defaults = self._defaults.get(name, {}).items()
        found = {key: value for key, value in defaults if _short(f"{name}.{key}") not in FUNCTIONS}
        for field in self._structs[name]:
            if field.get("inline"):
                found |= self._defaults_of(field["inline"])
        return found


def _short(field: str) -> str:
    """`Container.image` of `io.k8s.api.core.v1.Container.image`."""
    return ".".join(field.split(".")[-2:])


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

    def __init__(self, schemas: list[Schema], prefix: str) -> None:
        self.prefix, self.seen = prefix, Counter[str]()
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
                    self.names[text] = f"{self.prefix}.{len(self.names)}"
                    self.types[self.names[text]] = {k: self.replace(v) for k, v in schema.items()}
                return {"$ref": self.names[text]}
        return {k: self.replace(v) for k, v in schema.items()}


def custom(
    documents: list[Schema], prefix: str, written: dict[str, Schema]
) -> tuple[dict[str, Schema], dict[str, str]]:
    """The types of some CRDs (`documents`) and of `written` ones. What they share among them has names that begin with `prefix`."""
    roots = dict(written)
    for crd in documents:
        spec = crd["spec"]
        for version in spec["versions"]:
            key = f"{spec['group']}/{version['name']}/{spec['names']['kind']}"
            schema = unprosed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"$ref": META}
            roots[key] = schema
    sharing = Sharing(list(roots.values()), prefix)
    types = {key: {k: sharing.replace(v) for k, v in schema.items()} for key, schema in roots.items()}
    return {**types, **sharing.types}, {key: key for key in types}


TRAINER = "trainer"
TRAINER_GROUPS = ("jobset.x-k8s.io/", "trainer.kubeflow.org/")


def trainer(directory: Path | None) -> tuple[dict[str, Schema], dict[str, str]]:
    """The types of JobSet's and Kubeflow Trainer's CRDs, which nothing here builds: from their files, or as they stand in the table."""
    if directory is not None:
        return custom([crd for file in sorted(directory.glob("*.yaml")) for crd in definitions(file)], TRAINER, {})
    table = json.loads(TABLE.read_text())
    types = {n: t for n, t in table["types"].items() if n.startswith((*TRAINER_GROUPS, f"{TRAINER}."))}
    return types, {key: name for key, name in table["kinds"].items() if key.startswith(TRAINER_GROUPS)}


def definitions(file: Path) -> list[Schema]:
    """The CustomResourceDefinitions of a file of manifests."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [d for d in yaml.load_all(file.read_text(), loader) if d and d["kind"] == "CustomResourceDefinition"]


def schedulers() -> dict[str, Schema]:
    """The types of KAI's kinds, and of the PodGroups of coscheduling and Volcano as far as Trainer writes them."""
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
    gang: dict[str, Schema] = {"minMember": whole, "minResources": anything}
    volcano = {"minTaskMember": anything, "queue": text, "priorityClassName": text, "networkTopology": anything}
    return {
        "scheduling.x-k8s.io/v1alpha1/PodGroup": struct(
            **head, spec=struct(**gang, scheduleTimeoutSeconds=whole), status=anything
        ),
        "scheduling.volcano.sh/v1beta1/PodGroup": struct(**head, spec=struct(**gang, **volcano), status=anything),
        "scheduling.run.ai/v2/Queue": struct(**head, spec=queue, status=anything),
        "scheduling.run.ai/v2alpha2/PodGroup": struct(**head, spec=group, status=anything),
    }


def write(types: dict[str, Schema], kinds: dict[str, str]) -> str:
    def line(value: Any) -> str:
        return json.dumps(value, separators=(",", ":"), sort_keys=True)

    def section(name: str, values: dict[str, Any]) -> str:
        return f"{line(name)}:{{\n" + ",\n".join(f"{line(key)}:{line(values[key])}" for key in sorted(values)) + "}"

    sections = [section("kinds", kinds), section("types", types)]
    return "{" + ",\n".join([f'"release":{line(KUBERNETES)}', *sections]) + "}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crds", type=Path, help="the operator's manifests, instead of those of the built cluster")
    parser.add_argument(
        "--trainer-crds", type=Path, help="directory with the CRDs of JobSet and Kubeflow Trainer, where they change"
    )
    parser.add_argument("--out", type=Path, default=TABLE)
    given = parser.parse_args()
    program = Path(__file__).parent / "go_facts" / "main.go"
    facts = GoFacts(json.loads(run_program(program, *ROOTS, *OPTIONS)))
    types, kinds = custom(definitions(given.crds or build() / MANIFESTS), "crd", schedulers())
    more_types, more_kinds = trainer(given.trainer_crds)
    given.out.write_text(write({**facts.types, **types, **more_types}, {**facts.kinds, **kinds, **more_kinds}))


if __name__ == "__main__":
    main()
