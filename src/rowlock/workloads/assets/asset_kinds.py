"""The table of assets: under which path each kind is served, what its spec may say, and what a submit gets from it.

A spec is checked by the parsers that read a submit: what an asset may say is what a submit may say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock import submit_fields
from rowlock.workloads import compute, storage, submission
from rowlock.workloads.body_fields import BodyErrors, Fields

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AssetKind:
    """One kind. `path` is the last part of its address, `kind` Run:ai's word in `meta.kind`."""

    path: str
    kind: str
    fields: tuple[str, ...]
    to_submit_spec: Callable[[Spec], dict[str, Any]]
    """The part of a submit's `spec` that an asset's spec stands for."""
    check: Callable[[Fields], None]
    """Reads that part of a submit, and notes its mistakes."""
    refused: Mapping[str, tuple[Any, str]]
    storage: str = ""
    """Where a data source goes below `spec.storage`; "" for what is no data source."""

    def check_spec(self, spec: Any, errors: BodyErrors) -> None:
        """Note what is wrong with an asset's spec."""
        body = Fields("spec", spec if isinstance(spec, Mapping) else {}, errors)
        if spec is not None and not isinstance(spec, Mapping):
            errors.add("spec", "type", "must be a JSON object.")
        body.allow_only(*self.fields, refused=self.refused)
        if not errors.causes:
            known = {name: value for name, value in body.values.items() if name in self.fields}
            self.check(Fields("spec", self.to_submit_spec(known), errors))


_SECURITY = (
    "uidGidSource", "runAsUid", "runAsGid", "supplementalGroups", "capabilities", "seccompProfileType", "runAsNonRoot",
    "readOnlyRootFilesystem", "allowPrivilegeEscalation", "hostIpc", "hostNetwork",
)  # fmt: skip
_PROGRAM = (
    "image", "imagePullPolicy", "command", "args", "environmentVariables", "workingDir", "createHomeDir", "stdin", "tty",
)  # fmt: skip
_NO_INGRESS = "this cluster has no ingress: reach a pod with `rowlock port-forward`"
_ENVIRONMENT_REFUSED: dict[str, tuple[Any, str]] = {
    "connections": (None, _NO_INGRESS),
    "probes": (None, "submit a manifest with kubectl"),
    "overrideUidGidInWorkspace": (False, "set runAsUid of the workload"),
}


def _environment_part(spec: Spec) -> dict[str, Any]:
    """An environment says flat what a submit has below `security`."""
    security = {name: spec[name] for name in _SECURITY if spec.get(name) is not None}
    program = {name: spec[name] for name in _PROGRAM if spec.get(name) is not None}
    return program | ({"security": security} if security else {})


def _compute_part(spec: Spec) -> dict[str, Any]:
    return {"compute": {name: value for name, value in spec.items() if value is not None}}


def _check_environment(body: Fields) -> None:
    submission.parse_role(body, "asset")


def _check_compute(body: Fields) -> None:
    compute.parse_compute(body.object("compute"))


def _check_storage(body: Fields) -> None:
    storage.parse_storage(body.object("storage"), "asset")


def _data_source(path: str, kind: str, place: str, *fields: str, **refused: tuple[Any, str]) -> AssetKind:
    def storage_part(spec: Spec) -> dict[str, Any]:
        return {"storage": {place: [{name: value for name, value in spec.items() if value is not None}]}}

    return AssetKind(f"datasource/{path}", kind, fields, storage_part, _check_storage, refused, place)


ASSET_KINDS: tuple[AssetKind, ...] = (
    AssetKind(
        "environment", "environment", (*_PROGRAM, *_SECURITY), _environment_part, _check_environment,
        _ENVIRONMENT_REFUSED,
    ),
    AssetKind("compute", "compute", submit_fields.field_names("compute"), _compute_part, _check_compute, {}),
    _data_source(
        "pvc", "pvc", "pvc", "path", "existingPvc", "claimName", "readOnly", "ephemeral", "claimInfo",
        dataSharing=(False, "a claim belongs to one project"),
    ),
    _data_source("host-path", "hostPath", "hostPath", "path", "mountPath", "readOnly", "mountPropagation"),
    _data_source(
        "git", "git", "git", "repository", "branch", "revision", "path", "secretRef",
        passwordAssetId=(None, "this cluster keeps no credentials: name a Secret in secretRef"),
        credentialId=(None, "this cluster keeps no credentials: name a Secret in secretRef"),
    ),
    _data_source("config-map", "config-map", "configMapVolume", "configMap", "mountPath", "subPath", "defaultMode"),
)  # fmt: skip
"""Every kind that is kept here. NFS, S3 and credentials are not: no node mounts or uses them."""


def by_kind(kind: str) -> AssetKind | None:
    """The row of Run:ai's word for a kind."""
    return next((one for one in ASSET_KINDS if one.kind == kind), None)
