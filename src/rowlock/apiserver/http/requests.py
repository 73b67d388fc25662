"""Parses a request to the Kubernetes API: its target, verb, options, the form of the answer, and its user.

Everything in a request is either understood or refused: unknown query parameters, invalid values, bodies that
are too large or of an unsupported type. Nothing is ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.apiserver.schema.json_errors import unmarshal_error
from rowlock.authentication.users import User
from rowlock.authorization.authorizer import Attributes, Authorizer, require
from rowlock.errors import BadRequest, Cause, Invalid, NotAcceptable, NotFound, Timeout, Unsupported, invalid
from rowlock.kinds import Kind
from rowlock.storage import lifecycle

BODY_LIMIT = 3 * 1024 * 1024
PAGE_LIMIT = 1_000_000
YAML = "application/yaml"


def _cannot_send(chunk: bytes) -> bool:
    return False


def _leave_connection() -> None:
    """The default for `Call.cut`: under another ASGI server the connection cannot be closed."""


def path_not_found() -> NotFound:
    """The error for an unknown path. As on a real server it has empty `details`."""
    return NotFound("the server could not find the requested resource", details={})


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a kind, and optionally a namespace, an object and a subresource."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """The resource as in RBAC rules: `pods`, `pods/log`."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


@dataclass(slots=True)
class Call:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[bytes, bytes]
    user: User
    authorizer: Authorizer
    body: bytes = b""
    impersonator: str = ""
    """The name of the user who impersonates `user`; "" = none."""
    is_authorized: bool = False
    """The right has been checked already, for another resource name."""
    required: Attributes | None = None
    """The right that was checked last; None before."""
    identify: Callable[[], Awaitable[tuple[User, str]]] | None = None
    """`user` and `impersonator` as they are now: raises Unauthorized or Forbidden once the token, or the right to impersonate, is gone."""
    warnings: list[str] = field(default_factory=list)
    stream_scope: Any = None
    """The ASGI scope of a websocket, or of a client that asks for SPDY/3.1 on this connection (see `http_protocol.py`)."""
    verb: str = ""
    """The Kubernetes verb, once it is known; "" before."""
    target: Target | None = None
    """The target, once it is known; None for non-resource paths."""
    pass_on: Callable[[bytes], bool] = _cannot_send
    """Sends a chunk of a begun answer without awaiting; False when it cannot now (see `http_protocol.py`)."""
    cut: Callable[[], None] = _leave_connection
    """Closes the connection of a client that has stopped reading."""

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    def flag(self, name: str) -> bool:
        """A boolean parameter, as Kubernetes reads it: true if present and not `false` or `0`, so `?watch` is a watch."""
        return name in self.query and self.query[name].lower() not in ("false", "0")

    def number(self, name: str) -> int | None:
        text = self.query.get(name)
        if text is None or text == "":
            return None
        if not _INT64.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
            why = "invalid syntax" if not _INTEGER.fullmatch(text) else "value out of range"
            raise BadRequest(f'strconv.ParseInt: parsing "{text}": {why}')
        return int(text)

    def require(self, verb: str, target: Target) -> None:
        """Raise Forbidden if the user lacks this right. A namespace counts as being in itself, and a list whose field selector
        names one object as a request for that object."""
        if self.is_authorized:
            return
        kind, namespace, name, subresource = target.kind, target.namespace, target.name, target.subresource
        resource = kind.plural
        if kind is kinds.NAMESPACE:
            namespace = name
        elif subresource == "binding" and not name:
            resource, subresource = "bindings", ""
        if verb in ("list", "watch") and "fieldSelector" in self.query:
            match = _ONE_NAME.search(self.query["fieldSelector"])
            name = match[1] if match else ""
        self.required = Attributes(verb, kind.group, resource, subresource, namespace, name)
        if not self.user.is_master:
            require(self.authorizer, self.user, self.required)

    def check_query(self, allowed: frozenset[str]) -> None:
        """Raise BadRequest for query parameters that are not in `allowed`."""
        for name in self.query:
            if name not in allowed:
                matches = difflib.get_close_matches(name, allowed, 1)
                hint = f"; did you mean {matches[0]}?" if matches else ""
                raise BadRequest(f'unknown query parameter "{name}"{hint}')


_ONE_NAME = re.compile(r"(?:^|,)\s*metadata\.name\s*==?\s*([^,\s/%\\]+)\s*(?=,|$)")
_INT64 = re.compile(r"[+-]?[0-9]{1,19}")
_INTEGER = re.compile(r"[+-]?[0-9]+")

READ_PARAMETERS = frozenset({"pretty", "resourceVersion", "includeObject", "timeout"})
LIST_PARAMETERS = READ_PARAMETERS | {
    "labelSelector", "fieldSelector", "limit", "continue", "resourceVersionMatch", "watch", "allowWatchBookmarks",
    "sendInitialEvents", "timeoutSeconds",
}  # fmt: skip
WRITE_PARAMETERS = frozenset({"pretty", "dryRun", "fieldManager", "fieldValidation", "timeout"})
PATCH_PARAMETERS = WRITE_PARAMETERS | {"force"}
DELETE_PARAMETERS = frozenset(
    {"pretty", "dryRun", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "timeout"}
)
DELETE_COLLECTION_PARAMETERS = DELETE_PARAMETERS | (
    LIST_PARAMETERS - {"watch", "allowWatchBookmarks", "sendInitialEvents"}
)


def parse_query(raw: bytes) -> dict[str, str]:
    """Parse the query string; the first of duplicate parameters counts, as on a real server. Values of `dryRun` are joined,
    so that a request with two different values is refused."""
    if not raw:
        return {}
    pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True)
    query = dict(reversed(pairs))
    if "dryRun" in query:
        query["dryRun"] = ",".join(dict.fromkeys(value for name, value in pairs if name == "dryRun"))
    return query


def parse_target(group: str, version: str, rest: list[str]) -> Target:
    """The target of a path below `/api/v1` or `/apis/GROUP/VERSION`. Raises NotFound."""
    if rest[0] == "namespaces" and not group and (len(rest) < 3 or rest[2] in ("status", "finalize")):
        kind, space, tail = kinds.NAMESPACE, "", rest[1:]
    elif rest[0] == "namespaces" and len(rest) >= 3:
        kind, space, tail = kinds.by_path(group, version, rest[2]), rest[1], rest[3:]
        # an empty namespace means all namespaces: Python's client sends that for ""
        if not kind.namespaced or (tail and not space):
            raise path_not_found()
    else:
        kind, space, tail = kinds.by_path(group, version, rest[0]), "", rest[1:]
        if kind.namespaced and tail:
            raise path_not_found()
    if len(tail) > 2 or not all(tail):
        raise path_not_found()
    return Target(kind, space, *tail)


WRONG_METHOD = "the server does not allow this method on the requested resource"


def verb_of(call: Call, name: str, subresource: str = "") -> str:
    """The Kubernetes verb of a request. Raises Unsupported for a method that is not allowed."""
    if call.method == "GET":
        if name:
            return "get"
        return "watch" if call.flag("watch") else "list"
    if call.method == "POST" and (not name or subresource):
        return "create"
    if call.method == "DELETE":
        return "delete" if name else "deletecollection"
    if call.method in ("PUT", "PATCH") and name:
        return "update" if call.method == "PUT" else "patch"
    raise Unsupported(WRONG_METHOD)


def watch_target(call: Call, target: Target) -> Target:
    """The target of a path after the deprecated prefix `/watch/`: a watch, of one object if the path names one."""
    if target.subresource:
        raise path_not_found()
    if call.method != "GET":
        raise Unsupported(WRONG_METHOD)
    call.query["watch"] = "true"
    if target.name:
        selectors = [call.query.get("fieldSelector", ""), f"metadata.name={target.name}"]
        call.query["fieldSelector"] = ",".join(filter(None, selectors))
    return Target(target.kind, target.namespace)


# ---------------------------------------------------------------- forms


@lru_cache(256)
def negotiate_form(accept: str, *, for_list: bool = False) -> str:
    """The first acceptable form that a client names: `Table`, `PartialObjectMetadata`, `PartialObjectMetadataList`, or ""
    for the object itself. Raises NotAcceptable."""
    for media, parameters in _parse_accept(accept):
        if media not in _JSON_MEDIA_TYPES and media != YAML:
            continue
        view = parameters.get("as", "")
        if not view:
            return ""
        if parameters.get("g", "meta.k8s.io") != "meta.k8s.io":
            continue
        if view in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList") and parameters.get("v") == "v1":
            return view
    available = f"application/json, {YAML}, application/vnd.kubernetes.protobuf"
    if for_list:
        available += ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    raise NotAcceptable(f"406: Not Acceptable\n\nAvailable representations: {available}")


def wants_yaml(accept: str) -> bool:
    """Whether YAML is the first supported media type in the Accept header."""
    return next(
        (media == YAML for media, _ in _parse_accept(accept) if media in _JSON_MEDIA_TYPES or media == YAML), False
    )


def aggregated_discovery_version(accept: str) -> str:
    """The requested version of the aggregated discovery document; "" for the older lists."""
    for media, parameters in _parse_accept(accept):
        if media not in _JSON_MEDIA_TYPES:
            continue
        if parameters.get("as", "") == "":
            return ""
        if parameters["as"] == "APIGroupDiscoveryList" and parameters.get("v") in ("v2", "v2beta1"):
            return parameters["v"]
    return ""


def _parse_accept(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The media types of an Accept header with their parameters, ordered by preference."""
    media_types = []
    for part in accept.split(",") if accept.strip() else ["*/*"]:
        media, *parameters = [p.strip() for p in part.split(";")]
        media_types.append((media, dict(p.partition("=")[::2] for p in parameters)))
    return sorted(media_types, key=lambda one: -_weight(one[1].get("q", "1")))


def _weight(text: str) -> float:
    return float(text) if _WEIGHT.fullmatch(text) else 1.0


_WEIGHT = re.compile(r"[01](\.[0-9]*)?")
_JSON_MEDIA_TYPES = ("application/json", "*/*")


# ---------------------------------------------------------------- options


def invalid_option(kind: str, name: str, text: str) -> Invalid:
    """The error for an invalid option of a request."""
    reasons = {"Forbidden": "Forbidden", "Required": "Required", "Too": "TooLong", "Unsupported": "NotSupported"}
    reason = reasons.get(re.match(r"\w*", text)[0], "Invalid")  # type: ignore[index]  # it always matches
    return invalid(kind, "", [Cause(f"FieldValue{reason}", text, name)], "meta.k8s.io")


def is_dry_run(call: Call, kind: str) -> bool:
    """Whether the request is a dry run. Raises Invalid, also for `?dryRun=`: an empty value may be meant as a dry run."""
    if "dryRun" not in call.query:
        return False
    return parse_dry_run(call.query["dryRun"].split(","), kind)


def parse_dry_run(values: list[str], kind: str) -> bool:
    """Whether `dryRun` is set; its only valid value is All. Raises Invalid."""
    if any(text != "All" for text in values):
        encoded = msgspec.json.encode(values).decode()
        raise invalid_option(kind, "dryRun", f'Unsupported value: {encoded}: supported values: "All"')
    return bool(values)


def write_options(call: Call, kind: str) -> WriteOptions:
    """The write options in the query. `kind`: CreateOptions, UpdateOptions or PatchOptions, for messages. Raises Invalid."""
    validation = call.query.get("fieldValidation") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        known = '"", "Ignore", "Strict", "Warn"'
        raise invalid_option(kind, "fieldValidation", f'Unsupported value: "{validation}": supported values: {known}')
    manager = call.query.get("fieldManager") or call.header(b"user-agent").partition("/")[0] or "unknown"
    if len(manager) > 128:
        raise invalid_option(kind, "fieldManager", "Too long: may not be more than 128 bytes")
    return WriteOptions(
        dry_run=is_dry_run(call, kind),
        manager=manager,
        force=call.flag("force"),
        validation=validation,  # type: ignore[arg-type]  # one of the three: checked above
        warnings=call.warnings,
    )


def parse_revision(call: Call) -> int | None:
    """`resourceVersion` as a number; None when it is not given. Raises Invalid."""
    text = call.query.get("resourceVersion")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        cause = Cause(
            "FieldValueInvalid", f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
        raise Invalid(f"resourceVersion: {cause.message}", causes=[cause])
    return int(text)


def check_list_options(call: Call, revision: int | None, *, watch: bool = False) -> None:
    """Check for list options that exclude each other, as upstream's `ValidateListOptions`. Raises Invalid."""
    match, streaming = call.query.get("resourceVersionMatch", ""), "sendInitialEvents" in call.query
    name, text = "resourceVersionMatch", ""
    if watch and streaming and match != "NotOlderThan":
        text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif watch and match and not streaming:
        text = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    elif not watch and match not in ("", "Exact", "NotOlderThan"):
        text = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
    elif not watch and match and revision is None:
        text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif not watch and match == "Exact" and not revision:
        text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    elif not watch and streaming:
        name, text = "sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list"
    if text:
        raise invalid_option("ListOptions", name, text)


def revision_too_large(requested: int, current: int) -> Timeout:
    """The error for a future revision. Informers check its cause and list again without a revision."""
    causes = [Cause("ResourceVersionTooLarge", "Too large resource version")]
    return Timeout(
        f"Timeout: Too large resource version: {requested}, current: {current}", causes=causes, retry_after=1
    )


_UNREAD_KIND = "couldn't get version/kind; json parse error"


def unrecognised_object(kind: Kind, why: str) -> BadRequest:
    """The error for a body that is not an object of a known kind."""
    return BadRequest(f"the object provided is unrecognized (must be of type {kind.name}): {why}")


def object_for_target(call: Call, target: Target, obj: Any) -> objects.Object:
    """The body as an object of the target's kind and namespace. Raises BadRequest."""
    kind = target.kind
    if not isinstance(obj, dict):
        raise unrecognised_object(kind, f"{_UNREAD_KIND}: {unmarshal_error(obj, 'an object')}")
    if kind.custom and not obj.get("kind"):
        raise unrecognised_object(kind, "Object 'Kind' is missing")
    if kind.custom and not obj.get("apiVersion"):
        why = f"the API version in the data () does not match the expected API version ({kind.api_version})"
        raise BadRequest(why)
    _check_kind(kind, str(obj.get("apiVersion") or kind.api_version), str(obj.get("kind") or kind.name))
    meta = obj.get("metadata")
    if meta is None:
        meta = {}
    if not isinstance(meta, dict):
        why = unmarshal_error(meta, f"Go struct field {kind.name}.metadata of type v1.ObjectMeta")
        raise BadRequest(f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {why}')
    space = meta.get("namespace")
    if space and kind.namespaced and space != target.namespace:
        raise BadRequest(lifecycle.NAMESPACE_MISMATCH_MESSAGE)
    if space and not kind.namespaced:
        meta = {k: v for k, v in meta.items() if k != "namespace"}
    if kind.namespaced:
        meta = {**meta, "namespace": target.namespace}
    return {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}


def apply_configuration(kind: Kind, value: Any) -> objects.Object:
    """The body of a server-side apply, unchanged. Raises BadRequest when it is of another kind."""
    if not isinstance(value, dict | None):
        why = unmarshal_error(value, "an object")
        raise BadRequest(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    config = value or {}
    version, name = (text if isinstance(text, str) else "" for text in (config.get("apiVersion"), config.get("kind")))
    if (version, name) != (kind.api_version, kind.name):
        group, _, plain = version.rpartition("/")
        raise BadRequest(f"invalid object type: {group}/{plain}, Kind={name}")
    return config


def _check_kind(kind: Kind, version: str, name: str) -> None:
    """Raise BadRequest when the body's apiVersion and kind are not those of the path."""
    if version != kind.api_version and (kind.custom or kind is kinds.EVENTS_V1_EVENT):
        text = f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        raise BadRequest(text)
    if (version, name) == (kind.api_version, kind.name):
        return
    group, _, plain = version.rpartition("/")
    known = any((k.group, k.version, k.name) == (group, plain, name) for k in kinds.KINDS)
    why = "the kinds differ" if known or kind.custom else f'no kind "{name}" is registered for version "{version}"'
    raise BadRequest(f'{name} in version "{plain}" cannot be handled as a {kind.name}: {why}')
