"""Workloads submitted as manifests (`/api/v2/workloads`): a Kubernetes job with a project, a name and a priority.

The manifest's fields are kept; the project's namespace, queue and labels are added, as for a submit of `/api/v1`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock import kinds, objects
from rowlock.documents.yaml_reader import read_yaml
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.training.pod_group import PREEMPTIBILITY_LABEL
from rowlock.workloads import frameworks, runai_json, submission
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.objects import CATEGORY, CREATED_BY, SOURCE, WORKLOAD_ID, Submitter, label_value
from rowlock.workloads.projects import Project
from rowlock.workloads.runai_json import TENANT, Workload

MANIFEST_ANNOTATION = "rowlock.dev/manifest"
"""The annotation that stores the manifest as submitted."""
POD_LABELS = (
    "project", "release", "workloadName", "runai/queue", "kai.scheduler/queue", "user", "priorityClassName", CATEGORY,
    PREEMPTIBILITY_LABEL,
)  # fmt: skip
"""The labels of a job that are copied to its pods."""
_MAX_MANIFEST = 128 * 1024
_UPDATABLE = ("priority", "category")
_NEVER_KEPT = (
    "managedFields",
    "resourceVersion",
    "uid",
    "generation",
    "creationTimestamp",
    "selfLink",
    "ownerReferences",
)


@dataclass(frozen=True, slots=True)
class ManifestRequest:
    """A create or update request. `manifest` None means no change of the job's spec."""

    name: str
    is_name_prefix: bool
    project: str
    cluster: str
    labels: Mapping[str, str]
    manifest: Object | None
    kind: Kind | None


def parse_manifest_request(body: Any, *, new: bool) -> ManifestRequest:
    """The body of a POST, or of a PUT, whose metadata may only have priority and category. Raises BadRequest with one cause per mistake."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only("metadata", "manifest", "manifestBase64Encoded")
    meta = top.object("metadata")
    allowed = ("name", "useGivenNameAsPrefix", "projectId", "clusterId", "preemptibility") if new else ()
    meta.allow_only(*_UPDATABLE, *allowed)
    manifest = _parse_manifest(top)
    if new and manifest is None and not errors.causes:
        top.add_error("manifest", "required", "a workload needs its manifest, as JSON or as YAML in base 64.")
    kind = None if manifest is None else _job_kind(top, manifest)
    name = meta.text("name") or (objects.name(manifest) if manifest and new else "")
    if new:
        _check_names(meta, name)
    errors.raise_if_any()
    labels = _labels(meta)
    errors.raise_if_any()
    return ManifestRequest(
        name, meta.flag("useGivenNameAsPrefix"), meta.text("projectId"), meta.text("clusterId"), labels, manifest, kind
    )


def _check_names(meta: Fields, name: str) -> None:
    if not name or submission.valid_name(name) != name:
        meta.add_error("name", "format" if name else "required", submission.name_rule(name))
    if not meta.text("projectId"):
        meta.add_error("projectId", "required", "a project is needed: GET /api/v1/org-unit/projects lists them.")


def _labels(meta: Fields) -> dict[str, str]:
    priority = meta.choice("priority", *submission.PRIORITIES)
    category = meta.choice("category", *submission.CATEGORIES)
    preemptibility = meta.choice("preemptibility", "preemptible", "non-preemptible")
    labels = {
        "priorityClassName": priority,
        CATEGORY: category.replace("Train", ""),
        PREEMPTIBILITY_LABEL: preemptibility,
    }
    return {name: value for name, value in labels.items() if value}


def _parse_manifest(top: Fields) -> Object | None:
    """The manifest from either of the two fields, or None; mistakes are added to the errors."""
    plain, encoded = top.get("manifest"), top.text("manifestBase64Encoded")
    if plain is not None and encoded:
        top.add_error("manifest", "exclusive", "must be absent when manifestBase64Encoded is there.")
        return None
    if not encoded:
        return dict(top.object("manifest").values) if plain is not None else None
    if len(encoded) > 2 * _MAX_MANIFEST:
        top.add_error("manifestBase64Encoded", "max", f"has more than {_MAX_MANIFEST:,} bytes.")
        return None
    try:
        parsed = read_yaml(b64decode(encoded, validate=True))
    except ValueError as error:  # invalid base64 or YAML
        top.add_error("manifestBase64Encoded", "format", f"is no YAML document in base 64: {str(error)[:200]}")
        return None
    if not isinstance(parsed, dict):
        top.add_error("manifestBase64Encoded", "type", "must be one YAML document with one object.")
        return None
    return parsed


def _job_kind(top: Fields, manifest: Object) -> Kind | None:
    """The manifest's kind of job; adds an error for other kinds, and for a manifest that is too large."""
    version, word = manifest.get("apiVersion"), manifest.get("kind")
    kind = kinds.by_api_version(version, word) if isinstance(version, str) and isinstance(word, str) else None
    if kind not in kinds.JOBS or kind.api_version != version:
        names = ", ".join(f"{one.api_version} {one.name}" for one in kinds.JOBS)
        top.add_error("manifest", "options", f"must be one of {names}, not {str(version)[:60]} {str(word)[:60]}.")
        return None
    if not isinstance(manifest.get("metadata") or {}, dict) or not isinstance(manifest.get("spec"), dict):
        top.add_error("manifest", "type", "needs a spec, and its metadata must be an object.")
        return None
    size = len(json.dumps(manifest).encode())
    if size > _MAX_MANIFEST:
        top.add_error("manifest", "max", f"has {size:,} bytes; {_MAX_MANIFEST:,} are allowed. Create it with kubectl.")
    return kind


def to_job(request: ManifestRequest, project: Project, submitter: Submitter) -> Object:
    """The job to create: the manifest in its project."""
    manifest = dict(request.manifest or {})
    manifest.pop("status", None)
    labels = {
        "project": project.queue, "release": request.name, "workloadName": request.name, "runai/queue": project.queue,
        "kai.scheduler/queue": project.queue, **request.labels,
    }  # fmt: skip
    if submitter.user:
        labels["user"] = label_value(submitter.user)
    metadata = {name: value for name, value in (manifest.get("metadata") or {}).items() if name not in _NEVER_KEPT}
    own_labels, own_notes = (metadata.get(field) or {} for field in ("labels", "annotations"))
    notes = {
        MANIFEST_ANNOTATION: json.dumps(request.manifest, separators=(",", ":"), ensure_ascii=False),
        CREATED_BY: submitter.user,
        SOURCE: submitter.source,
    }
    metadata |= {
        "name": request.name, "namespace": project.namespace, "annotations": {**own_notes, **notes},
        "labels": {**own_labels, **labels, WORKLOAD_ID: submitter.id},
    }  # fmt: skip
    return {**manifest, "metadata": metadata, "spec": add_pod_labels(manifest, labels)}


def add_pod_labels(manifest: Object, labels: Mapping[str, str]) -> dict[str, Any]:
    """The job's spec with these labels on the pods of every replica type, where the scheduler reads them."""
    spec = dict(manifest["spec"])
    for field, replicas in spec.items():
        if replicas is not frameworks.replica_specs(manifest):
            continue
        spec[field] = {role: _label_replica(replica, labels) for role, replica in replicas.items()}
    return spec


def _label_replica(replica: Any, labels: Mapping[str, str]) -> Any:
    template = replica.get("template") if isinstance(replica, Mapping) else None
    if not isinstance(template, Mapping) or not isinstance(template.get("metadata") or {}, Mapping):
        return replica  # malformed: admission reports it
    metadata = dict(template.get("metadata") or {})
    own = metadata.get("labels") if isinstance(metadata.get("labels"), Mapping) else {}
    return {**replica, "template": {**template, "metadata": {**metadata, "labels": {**(own or {}), **labels}}}}


def manifest_workload_json(workload: Workload) -> dict[str, Any]:
    """Run:ai's WorkloadV2."""
    job, project = workload.job, workload.project
    kind = kinds.by_object(job)
    identity = runai_json.distributed_workload_json(workload)
    updated = workload.status().since or identity["createdAt"]
    metadata = {name: value for name, value in objects.meta(job).items() if name != "managedFields"}
    notes = {k: v for k, v in objects.annotations(job).items() if k != MANIFEST_ANNOTATION}
    current = {
        "apiVersion": kind.api_version, "kind": kind.name, "metadata": {**metadata, "annotations": notes},
        "spec": job.get("spec") or {},
    }  # fmt: skip
    sent = objects.annotations(job).get(MANIFEST_ANNOTATION)
    return {
        "metadata": {
            "name": objects.name(job),
            "projectId": project.id,
            "priority": runai_json.priority_class(job),
            "category": runai_json.category(job),
            "preemptibility": "preemptible" if runai_json.is_preemptible(job) else "non-preemptible",
            "id": runai_json.workload_id(job),
            "gvk": {"group": kind.group, "version": kind.version, "kind": kind.name},
            "projectName": project.name,
            "clusterId": workload.cluster,
            "tenantId": TENANT,
            "departmentId": project.department,
            "departmentName": project.department,
            "createdAt": identity["createdAt"],
            "createdBy": identity["createdBy"],
            "updatedAt": updated,
            "updatedBy": identity["createdBy"],
            "deletedAt": identity["deletedAt"],
            "deletedBy": None,
        },
        "desiredPhase": identity["desiredPhase"],
        "workloadManifest": current,
        "rawManifest": objects.written_json(sent) or current,
    }
