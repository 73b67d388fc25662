"""Applications: programs that log in with a client id and a secret, as in Run:ai's API.

An application is a Secret in kube-system that holds the SHA-256 digest of its client secret, never the secret itself; with 256 random
bits it cannot be guessed. Bindings give an application its rights; to Kubernetes it is the user `app:NAME`. Pure.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from typing import Any

from rowlock import objects
from rowlock.kinds import SECRET
from rowlock.objects import Object
from rowlock.workloads.body_fields import BodyErrors, Fields

NAMESPACE, SECRET_TYPE = "kube-system", "rowlock.dev/application"
USER_PREFIX, GROUP = "app:", "rowlock:applications"


def parse_name(body: Any) -> str:
    """The name in a request that creates an application. Raises BadRequest."""
    errors = BodyErrors()
    top = Fields("", body if isinstance(body, dict) else {}, errors)
    top.allow_only("name", refused={"roles": ([], "what it may do is said by access rules for it")})
    name = top.label("name")
    errors.raise_if_any()
    return name


def secret_name(client_id: str) -> str:
    """The name of an application's Secret; the client id is the application's name."""
    return f"application-{client_id}"


def to_secret(name: str, client_secret: str, creator: str) -> Object:
    """The Secret of a new application."""
    metadata = {
        "name": secret_name(name), "namespace": NAMESPACE, "labels": {"rowlock.dev/application": name},
        "annotations": {"rowlock.dev/created-by": creator},
    }  # fmt: skip
    data = {"digest": _digest(client_secret)}
    return {
        "apiVersion": SECRET.api_version,
        "kind": SECRET.name,
        "metadata": metadata,
        "type": SECRET_TYPE,
        "stringData": data,
    }


def application_name(secret: Object) -> str:
    """The application's name, which is also its client id; "" if the Secret has no such label."""
    return objects.labels(secret).get("rowlock.dev/application", "")


def application_json(secret: Object) -> dict[str, Any]:
    """Run:ai's JSON of an application, without its client secret."""
    meta, name = objects.meta(secret), application_name(secret)
    return {
        "id": objects.uid(secret), "name": name, "clientId": name, "enabled": True, "user": USER_PREFIX + name,
        "createdAt": meta.get("creationTimestamp"), "createdBy": objects.annotations(secret).get("rowlock.dev/created-by", ""),
    }  # fmt: skip


def has_secret(secret: Object | None, client_secret: str) -> bool:
    """Whether this is the application's client secret. Takes the same time if there is no such application."""
    is_application = secret is not None and secret.get("type") == SECRET_TYPE
    stored = (
        b64decode((secret or {}).get("data", {}).get("digest", "")).decode("ascii", "replace") if is_application else ""
    )
    return hmac.compare_digest(stored.encode(), _digest(client_secret).encode()) and is_application


def _digest(client_secret: str) -> str:
    return hashlib.sha256(client_secret.encode()).hexdigest()
