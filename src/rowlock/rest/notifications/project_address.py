"""The address that a project tells what happens to its jobs. Pure.

An annotation of the Namespace names a Secret there and has the digest of what is in it. Who may change the Namespace sets the address.
Who may only write the namespace's Secrets, as everybody can who submits jobs there, cannot redirect it: what does not match is not used.
The digest is salted, since an address that can be guessed must not be found by it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rowlock import objects
from rowlock.documents.notify_address import parse_notify_address
from rowlock.objects import Object
from rowlock.workloads.run_options.notify import EVENTS

ANNOTATION = "rowlock.dev/project-notify"
"""Namespace annotation: the address of the project, as `ProjectAddress` in JSON."""
_PREFIX = "project-notify-"
_LONGEST = 2_000
_SECRET_FIELDS = ("salt", "url", "key")


@dataclass(frozen=True, slots=True)
class ProjectAddress:
    """What everybody may know about the address. `secret` is the name of the Secret with the rest, `digest` that of its values."""

    secret: str
    digest: str
    shown: str
    """The address for people, without what may be a password."""
    events: tuple[str, ...]
    """What is told; () stands for everything."""
    is_signed: bool
    since: float
    """When it was set, in whole seconds since the epoch: what happened before is not told."""

    def to_annotation(self) -> str:
        fields = {
            "secret": self.secret, "digest": self.digest, "target": self.shown, "on": list(self.events),
            "signed": self.is_signed, "since": objects.timestamp(self.since),
        }  # fmt: skip
        return json.dumps(fields, separators=(",", ":"))

    def check(self, values: Mapping[str, str]) -> None:
        """Raises ValueError if these are not the values of the Secret with which the address was set."""
        if not hmac.compare_digest(_digest(values), self.digest):
            raise ValueError("it was changed after the address was set")


def is_set(namespace: Object | None) -> bool:
    """Whether the project of this namespace tells something to an address; also true when that is not readable."""
    return namespace is not None and ANNOTATION in objects.annotations(namespace)


def address_of(namespace: Object | None) -> ProjectAddress | None:
    """The address of the project of this namespace. Raises ValueError: people may write annotations themselves."""
    text = objects.annotations(namespace).get(ANNOTATION) if namespace is not None else None
    return None if text is None else _parse(text)


@lru_cache(1_000)
def _parse(text: str) -> ProjectAddress:
    if len(text) > _LONGEST:
        raise ValueError(f"the annotation {ANNOTATION} is too long")
    try:
        fields = json.loads(text)
        on, secret = tuple(map(str, fields["on"])), str(fields["secret"])
        if not (secret.startswith(_PREFIX) and set(on) <= set(EVENTS)):
            raise ValueError("a field is not as it should be")
        return ProjectAddress(
            secret, str(fields["digest"]), str(fields["target"]), on, bool(fields["signed"]), objects.seconds(fields["since"])
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError(f"the annotation {ANNOTATION} was not written by `rowlock project notify`") from None


def make_address(
    notify: Mapping[str, str], namespace: str, identity: str, salt: str, now: float
) -> tuple[ProjectAddress, Object]:
    """The address and its Secret, of what a request says (`parse_notify_fields`). `identity` makes the Secret's name unique: each change has
    its own, so that a reader never finds the values of another change."""
    values = {name: notify[name] for name in ("url", "key") if name in notify} | {"salt": salt}
    metadata = {"name": f"{_PREFIX}{identity[-8:]}", "namespace": namespace}
    data = {name: b64encode(value.encode()).decode() for name, value in values.items()}
    secret: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
    address = ProjectAddress(
        objects.name(secret),
        _digest(values),
        parse_notify_address(notify["url"]).public_form,
        tuple(filter(None, notify.get("on", "").split(","))),
        "key" in notify,
        float(int(now)),
    )
    return address, secret


def secret_values(secret: Object) -> dict[str, str]:
    """The values of a Secret as text. Raises ValueError."""
    return {str(name): b64decode(str(value)).decode() for name, value in (secret.get("data") or {}).items()}


def _digest(values: Mapping[str, str]) -> str:
    text = json.dumps([values.get(name, "") for name in _SECRET_FIELDS])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
