"""A request to the Kubernetes API, taken apart: whom it is about, what it asks, in which form, and by whom.

Everything a client can say is either understood here or refused: unknown query parameters, wrong values, bodies that
are too large or of a type that we do not read. Nothing is ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import BadRequest, Cause, Invalid, NotAcceptable, NotFound
from rowlock.kinds import Kind

BODY_LIMIT = 3 * 1024 * 1024
PAGE_LIMIT = 1_000_000
NOWHERE = "the server could not find the requested resource"


@dataclass(frozen=True, slots=True)
class User:
    """Who asks. Members of system:masters may do everything, all others nothing but ask who they are."""

    name: str
    groups: tuple[str, ...] = ("system:authenticated",)

    @property
    def master(self) -> bool:
        return "system:masters" in self.groups


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a kind, perhaps a namespace, an object, a part of it."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(slots=True)
class Call:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[bytes, bytes]
    user: User
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    def flag(self, name: str) -> bool:
        """A boolean parameter, as Go reads it."""
        text = self.query.get(name)
        if text in (None, "", "0", "f", "F", "false", "False", "FALSE"):
            return False
        if text in ("1", "t", "T", "true", "True", "TRUE"):
            return True
        raise BadRequest(f'the query parameter {name} is true or false, not "{text}"')

    def number(self, name: str) -> int | None:
        text = self.query.get(name)
        if text is None or text == "":
            return None
        try:
            return int(text)
        except ValueError:
            raise BadRequest(f'the query parameter {name} is a whole number, not "{text}"') from None

    def only(self, allowed: frozenset[str]) -> None:
        """Refuse parameters that this request does not know."""
        for name in self.query:
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise BadRequest(f'unknown query parameter "{name}"{hint}')


READ = frozenset({"pretty", "resourceVersion", "includeObject", "timeout"})
LIST = READ | {
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersionMatch", "watch", "allowWatchBookmarks",
    "sendInitialEvents", "timeoutSeconds",
}  # fmt: skip
WRITE = frozenset({"pretty", "dryRun", "fieldManager", "fieldValidation", "timeout"})
PATCH = WRITE | {"force"}
DELETE = frozenset({"pretty", "dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "timeout"})
DELETE_ALL = DELETE | (LIST - {"watch", "allowWatchBookmarks", "sendInitialEvents"})


def query_of(raw: bytes) -> dict[str, str]:
    """The query string; a parameter that comes twice counts once, the last time."""
    return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}


def target_of(group: str, version: str, rest: list[str]) -> Target:
    """What the path below `/api/v1` or `/apis/GROUP/VERSION` names. Raises NotFound."""
    if rest[0] == "namespaces" and not group and (len(rest) < 3 or rest[2] in ("status", "finalize")):
        kind, space, place = kinds.NAMESPACE, "", rest[1:]
    elif rest[0] == "namespaces" and len(rest) >= 3:
        kind, space, place = kinds.by_path(group, version, rest[2]), rest[1], rest[3:]
        if not kind.namespaced or not space:
            raise NotFound(NOWHERE)
    else:
        kind, space, place = kinds.by_path(group, version, rest[0]), "", rest[1:]
        if kind.namespaced and place:
            raise NotFound(NOWHERE)
    if len(place) > 2 or not all(place):
        raise NotFound(NOWHERE)
    return Target(kind, space, *place)


# ---------------------------------------------------------------- forms


@dataclass(frozen=True, slots=True)
class Form:
    """In which form the answer is wanted: JSON of the object, of a Table, or of metadata alone."""

    view: str = ""
    """`Table`, `PartialObjectMetadata`, `PartialObjectMetadataList` or "" """


@lru_cache(256)
def form_of(accept: str) -> Form:
    """The first acceptable form that a client names. Raises NotAcceptable."""
    for part in accept.split(",") if accept.strip() else ["*/*"]:
        media, *parameters = [p.strip() for p in part.split(";")]
        if media not in ("application/json", "*/*"):
            continue
        given = dict(p.partition("=")[::2] for p in parameters)
        view = given.get("as", "")
        if not view:
            return Form()
        if view in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList") and given.get("v") == "v1":
            return Form(view)
    raise NotAcceptable("only the following media types are accepted: application/json")


# ---------------------------------------------------------------- options


def wrong_option(kind: str, name: str, text: str) -> Invalid:
    """One option of a request that cannot be."""
    message = f'{kind}.meta.k8s.io "" is invalid: {name}: {text}'
    reason = "FieldValueNotSupported" if text.startswith("Unsupported") else "FieldValueInvalid"
    causes = [Cause("FieldValueForbidden" if text.startswith("Forbidden") else reason, text, name)]
    return Invalid(message, details={"group": "meta.k8s.io", "kind": kind}, causes=causes)


def dry_run(call: Call, kind: str) -> bool:
    text = call.query.get("dryRun", "")
    if text not in ("", "All"):
        raise wrong_option(kind, "dryRun", f'Unsupported value: ["{text}"]: supported values: "All"')
    return text == "All"


def write_options(call: Call, kind: str) -> WriteOptions:
    """`kind` is CreateOptions, UpdateOptions or PatchOptions, for messages."""
    validation = call.query.get("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        known = '"", "Ignore", "Strict", "Warn"'
        raise wrong_option(kind, "fieldValidation", f'Unsupported value: "{validation}": supported values: {known}')
    manager = call.query.get("fieldManager") or call.header(b"user-agent").partition("/")[0] or "unknown"
    if len(manager) > 128:
        raise wrong_option(kind, "fieldManager", f'Invalid value: "{manager}": may not be more than 128 bytes')
    return WriteOptions(
        dry_run=dry_run(call, kind),
        manager=manager,
        force=call.flag("force"),
        validation=validation,  # type: ignore[arg-type]  # one of the three: checked above
        warnings=call.warnings,
    )


def revision_of(call: Call) -> int | None:
    """`resourceVersion` as a number; None when it is not given."""
    text = call.query.get("resourceVersion")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        cause = Cause(
            "FieldValueInvalid", f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
        raise Invalid(f'resourceVersion: Invalid value: "{text}": must be a whole number', causes=[cause])
    return int(text)


def shaped(call: Call, target: Target, obj: Any) -> objects.Object:
    """The body as an object of the target's kind in its place, fit for the store. Raises BadRequest."""
    kind = target.kind
    if not isinstance(obj, dict):
        raise BadRequest(f"the body is not an object: {kind.name} expected")
    has = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.name
    if has[1] != kind.name:
        raise BadRequest(f'{has[1]} in version "{kind.version}" cannot be handled as a {kind.name}: the kinds differ')
    if has[0] != kind.api_version:
        text = f"the API version in the data ({has[0]}) does not match the expected API version ({kind.api_version})"
        raise BadRequest(text)
    meta = obj.get("metadata")
    if meta is None:
        meta = {}
    if not isinstance(meta, dict):
        raise BadRequest(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: metadata is not an object'
        )
    space = meta.get("namespace")
    if space and kind.namespaced and space != target.namespace:
        raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if space and not kind.namespaced:
        meta = {k: v for k, v in meta.items() if k != "namespace"}
    if kind.namespaced:
        meta = {**meta, "namespace": target.namespace}
    return {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}
