"""The table of asset kinds: the path of each kind, the fields of its spec, and what they become in a submit.

A spec is checked by the parsers of a submit, so assets and submits accept the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock import submit_fields
from rowlock.workloads import compute, submission
from rowlock.workloads.assets.credentials import CREDENTIAL_WORDS
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.storage.pod_storage import parse_storage

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CredentialField:
    """How a data source names a credential: the field is one of `names`, the credential one of `kinds`; `to_fields` turns the name of
    its Secret into fields of a submit."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    to_fields: Callable[[str], dict[str, Any]]
    required: bool = False


@dataclass(frozen=True, slots=True)
class AssetKind:
    """One kind. `path` is the last part of its address, `kind` Run:ai's word in `meta.kind`."""

    path: str
    kind: str
    fields: tuple[str, ...]
    to_submit_spec: Callable[[Spec], dict[str, Any]]
    """Converts an asset's spec to a part of a submit's `spec`."""
    check: Callable[[Fields], None]
    """Parses that part of a submit, adding its mistakes to the errors."""
    refused: Mapping[str, tuple[Any, str]]
    storage: str = ""
    """The field below `spec.storage` for a data source; "" for other assets."""
    credential: CredentialField | None = None
    """The field that names a credential, for data sources that may need one."""

    def with_secret(self, spec: Spec, secret_of: Callable[[CredentialField, str], str]) -> dict[str, Any]:
        """The spec with the name of the Secret, from `secret_of`, in place of the credential's id."""
        field = self.credential
        if field is None:
            return dict(spec)
        ids = [(name, spec[name]) for name in field.names if spec.get(name)]
        own = {name: value for name, value in spec.items() if name not in field.names}
        return own | field.to_fields(secret_of(field, str(ids[0][1]))) if ids else own

    def check_spec(self, spec: Any, errors: BodyErrors) -> None:
        """Check an asset's spec; mistakes are added to `errors`."""
        body = Fields("spec", spec if isinstance(spec, Mapping) else {}, errors)
        if spec is not None and not isinstance(spec, Mapping):
            errors.add("spec", "type", "must be a JSON object.")
        body.allow_only(*self.fields, refused=self.refused)
        if not errors.causes:
            known = {name: value for name, value in body.values.items() if name in self.fields}
            if (field := self.credential) and field.required and not body.text(field.names[0]):
                body.add_error(
                    field.names[0], "required", "needs the id of a credential: POST /api/v1/asset/credentials/KIND"
                )
                return
            known = self.with_secret(known, lambda _, __: "credential")
            self.check(Fields("spec", self.to_submit_spec(known), errors))


_SECURITY = (
    "uidGidSource", "runAsUid", "runAsGid", "supplementalGroups", "capabilities", "seccompProfileType", "runAsNonRoot",
    "readOnlyRootFilesystem", "allowPrivilegeEscalation", "hostIpc", "hostNetwork",
)  # fmt: skip
_PROGRAM = (
    "image", "imagePullPolicy", "command", "args", "environmentVariables", "workingDir", "createHomeDir", "stdin", "tty",
    "probes",
)  # fmt: skip
_NO_INGRESS = "this cluster has no ingress: reach a pod with `rowlock port-forward`"
_ENVIRONMENT_REFUSED: dict[str, tuple[Any, str]] = {
    "connections": (None, _NO_INGRESS),
    "overrideUidGidInWorkspace": (False, "set runAsUid of the workload"),
}


def _environment_part(spec: Spec) -> dict[str, Any]:
    """An environment's spec has the fields at top level that a submit has below `security`."""
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
    parse_storage(body.object("storage"), "asset")


def _data_source(
    path: str,
    kind: str,
    place: str,
    *fields: str,
    credential: CredentialField | None = None,
    **refused: tuple[Any, str],
) -> AssetKind:
    def storage_part(spec: Spec) -> dict[str, Any]:
        return {"storage": {place: [{name: value for name, value in spec.items() if value is not None}]}}

    own = (*fields, *(credential.names if credential else ()))
    return AssetKind(f"datasource/{path}", kind, own, storage_part, _check_storage, refused, place, credential)


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
    _data_source("nfs", "nfs", "nfs", "path", "server", "mountPath", "readOnly"),
    _data_source(
        "git", "git", "git", "repository", "branch", "revision", "path", "secretRef",
        credential=CredentialField(
            ("credentialId", "passwordAssetId"), ("password",),
            lambda secret: {"secretRef": {"name": secret, "authenticationMethod": "password"}},
        ),
    ),
    _data_source(
        "s3", "s3", "s3", "bucket", "path", "url",
        credential=CredentialField(("accessKeyAssetId",), ("accessKey",), lambda secret: {"accessKeySecret": secret}),
    ),
    _data_source("config-map", "config-map", "configMapVolume", "configMap", "mountPath", "subPath", "defaultMode"),
    _data_source(
        "secrets", "secret-volume", "secretVolume", "mountPath", "defaultMode",
        credential=CredentialField(
            ("credentialAssetId",), CREDENTIAL_WORDS, lambda secret: {"secret": secret}, required=True
        ),
    ),
)  # fmt: skip
"""Every kind of asset except credentials (`credentials.py`)."""


def by_kind(kind: str) -> AssetKind | None:
    """The row for Run:ai's word of a kind, or None."""
    return next((one for one in ASSET_KINDS if one.kind == kind), None)
