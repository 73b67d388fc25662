"""The table of credential kinds. Each credential becomes one Secret in its project's namespace. Pure.

Secret values are only in the Secret, which has the credential's name; the asset keeps the other fields. Pods name the
Secret, so a workload that uses a credential is a plain Kubernetes workload.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.kinds import SECRET
from rowlock.objects import Object
from rowlock.workloads.assets.asset_objects import LABEL, Asset
from rowlock.workloads.body_fields import BodyErrors, Fields

_SECRET_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_NGC_KEY = re.compile(r"[-._A-Za-z0-9]+")
_MAX_BYTES = 512 * 1024
MAX_PAIRS = 1_000
"""Most keys of a generic secret, which are parsed on the event loop."""
EXISTING = "existingSecretName"
SECRET_FIELD = "secretName"
"""Field of the asset's spec with the name of the Secret."""
Data = dict[str, str]


@dataclass(frozen=True, slots=True)
class CredentialKind:
    """One kind. `path` is the last part of its address, `kind` Run:ai's word in `meta.kind`."""

    path: str
    kind: str
    secret_type: str
    shown: tuple[str, ...]
    """Fields that are stored in the asset and shown."""
    hidden: tuple[str, ...]
    """Fields that are only in the Secret."""
    to_data: Callable[[Fields], Data]
    """Makes the Secret's data from the fields; mistakes are added to the errors."""

    def check_spec(self, body: Any, errors: BodyErrors) -> Data | None:
        """Check a spec. Returns the Secret's data, or None if it names an existing Secret; mistakes are added to `errors`."""
        spec = Fields("spec", body if isinstance(body, Mapping) else {}, errors)
        if not isinstance(body, Mapping):
            errors.add("spec", "type", "must be a JSON object.")
        fields = (*self.shown, *self.hidden)
        spec.allow_only(EXISTING, *fields)
        if existing := spec.text(EXISTING):
            check_secret_name(spec, EXISTING, existing)
            if given := [name for name in fields if spec.get(name) is not None]:
                spec.add_error(given[0], "exclusive", f"must be absent: the Secret {existing} has it.")
            return None
        data = self.to_data(spec)
        if sum(len(key) + len(value.encode()) for key, value in data.items()) > _MAX_BYTES:
            errors.add("spec", "max", f"has more than {_MAX_BYTES:,} bytes; a Secret holds no more.")
        return data

    def stored_spec(self, body: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The part of a spec that the asset stores, without secret values."""
        shown = {field: body[field] for field in self.shown if body.get(field) is not None}
        if self.kind == "genericSecret":
            shown["keys"] = [str(pair["key"]) for pair in body.get("keyValuePairs") or ()]
        existing = body.get(EXISTING)
        return ({EXISTING: existing} if existing else shown) | {SECRET_FIELD: existing or name}

    def to_secret(self, asset: Asset, data: Data, owner: Mapping[str, Any]) -> Object:
        """The Secret of an asset; it is owned by the asset's ConfigMap (`owner`), and deleted with it."""
        metadata = {
            "name": asset.name, "namespace": asset.namespace, "labels": {LABEL: self.kind}, "ownerReferences": [dict(owner)],
        }  # fmt: skip
        encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
        return {
            "apiVersion": "v1",
            "kind": SECRET.name,
            "metadata": metadata,
            "type": self.secret_type,
            "data": encoded,
        }


def check_secret_name(body: Fields, field: str, name: str) -> None:
    """Add an error if the name cannot be that of a Secret."""
    if not _SECRET_NAME.fullmatch(name):
        valid = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "my-credential"
        body.add_error(
            field,
            "format",
            f"{name!r} cannot be the name of a Secret, which a credential is: use {valid!r}, for example.",
        )


def secret_name(asset: Asset) -> str:
    """The name of the Secret with a credential's values."""
    return str(asset.spec.get(SECRET_FIELD) or asset.name)


def _read_required(spec: Fields, *names: str) -> list[str]:
    for name in names:
        if not spec.text(name):
            spec.add_error(name, "required", f"is needed, or {EXISTING} with the name of a Secret of the project.")
    return [spec.text(name) for name in names]


def _access_key(spec: Fields) -> Data:
    identity, secret = _read_required(spec, "accessKeyId", "secretAccessKey")
    return {"AccessKeyId": identity, "SecretKey": secret}


def _password(spec: Fields) -> Data:
    user, password = _read_required(spec, "user", "password")
    return {"username": user, "password": password}


def _docker_registry(spec: Fields) -> Data:
    user, password, url = _read_required(spec, "user", "password", "url")
    login = {"username": user, "password": password, "auth": b64encode(f"{user}:{password}".encode()).decode()}
    return {".dockerconfigjson": json.dumps({"auths": {url: login}})}


def _ngc_api_key(spec: Fields) -> Data:
    [key] = _read_required(spec, "ngc_api_key")
    if key and not _NGC_KEY.fullmatch(key):
        spec.add_error("ngc_api_key", "format", "must be a key of NVIDIA's NGC: letters, digits, '-', '_' and '.'.")
    return {"NGC_API_KEY": key}


def _generic_secret(spec: Fields) -> Data:
    data: Data = {}
    pairs = spec.get("keyValuePairs")
    if isinstance(pairs, list) and len(pairs) > MAX_PAIRS:
        spec.add_error("keyValuePairs", "max", f"has {len(pairs):,} pairs; {MAX_PAIRS:,} are allowed.")
        return data
    for pair in spec.items("keyValuePairs"):
        pair.allow_only("key", "value")
        key = pair.text("key")
        if not _KEY.fullmatch(key) or key in data:
            pair.add_error("key", "format", f"{key!r} must be a key of its own: letters, digits, '-', '_' and '.'.")
        data[key] = pair.text("value")
    if not data:
        spec.add_error("keyValuePairs", "required", f"needs one pair of key and value, or {EXISTING}.")
    return data


CREDENTIAL_KINDS: tuple[CredentialKind, ...] = (
    CredentialKind("access-key", "accessKey", "Opaque", ("accessKeyId",), ("secretAccessKey",), _access_key),
    CredentialKind("password", "password", "kubernetes.io/basic-auth", ("user",), ("password",), _password),
    CredentialKind(
        "docker-registry", "dockerRegistry", "kubernetes.io/dockerconfigjson", ("user", "url"), ("password",),
        _docker_registry,
    ),
    CredentialKind("generic-secret", "genericSecret", "Opaque", (), ("keyValuePairs",), _generic_secret),
    CredentialKind("ngc-api-key", "ngcApiKey", "Opaque", (), ("ngc_api_key",), _ngc_api_key),
)  # fmt: skip
CREDENTIAL_WORDS: tuple[str, ...] = tuple(row.kind for row in CREDENTIAL_KINDS)
REGISTRY = "dockerRegistry"


def credential_json(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Run:ai's JSON of a credential's spec. `keyId` is the encryption key of Run:ai's database; always 0 here."""
    return {**spec, "keyId": 0}
