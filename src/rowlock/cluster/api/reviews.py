"""Questions about rights: may this user do that, who am I, whose token is this. Answers are not stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from rowlock import kinds, objects
from rowlock.cluster.api import decoding, types
from rowlock.cluster.api.requests import Call, Target
from rowlock.cluster.api.users import READS, User
from rowlock.cluster.api.wording import invalid_value
from rowlock.errors import BadRequest, Cause, Forbidden, invalid
from rowlock.objects import Object

Answer = Callable[[Call, Object, Callable[[str], User | None]], dict[str, Any]]


def refusal(user: User, verb: str, target: Target) -> Forbidden:
    """The sentence for a user who may not."""
    kind, resource = target.kind, target.resource
    subject = f'{kind.resource} "{target.name}"' if target.name else kind.resource
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    text = (
        f'{subject} is forbidden: User "{user.name}" cannot {verb} resource "{resource}"'
        f' in API group "{kind.group}" {where}'
    )
    details = {**({"name": target.name} if target.name else {}), **({"group": kind.group} if kind.group else {})}
    return Forbidden(text, details={**details, "kind": kind.plural})


def _verdict(user: User, spec: Object) -> dict[str, Any]:
    """May this user do what the review's spec asks about?"""
    if user.master:
        return {"allowed": True}
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if asked is not None:
        part = f"/{asked['subresource']}" if asked.get("subresource") else ""
        allowed = user.may(asked.get("verb") or "", f"{asked.get('resource') or ''}{part}")
    else:
        allowed = path is not None and path.get("verb") == "get" and _open(path.get("path") or "")
    return {"allowed": True, "reason": "rowlock:viewers may read"} if allowed and asked else {"allowed": allowed}


def _open(path: str) -> bool:
    """Discovery and health are for everybody."""
    known = _LOOK["nonResourceURLs"]
    return path in known or any(one.endswith("*") and path.startswith(one[:-1]) for one in known)


def _causes(kind: str, spec: Object) -> Iterator[Cause]:
    """A question is about one thing, and about somebody."""
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if asked is not None and path is not None:
        shown = {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
        yield invalid_value(
            "spec.nonResourceAttributes", shown, "cannot be specified in combination with resourceAttributes"
        )
    elif asked is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid_value("spec.resourceAttributes", None, why)
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", "", "at least one of user or group must be specified")


def _own_access(call: Call, body: Object, users: Callable[[str], User | None]) -> dict[str, Any]:
    return _verdict(call.user, _asked("SelfSubjectAccessReview", body))


def _asked(kind: str, body: Object) -> Object:
    """The question, once it is one. Raises Invalid."""
    spec: Object = body.get("spec") or {}
    if found := list(_causes(kind, spec)):
        refused = invalid("", "", found, AUTHORIZATION[0])
        refused.details.pop("kind", None)  # a real server does not say what of
        raise refused
    return spec


def _access(call: Call, body: Object, users: Callable[[str], User | None]) -> dict[str, Any]:
    spec = _asked("SubjectAccessReview", body)
    return _verdict(User(spec.get("user") or "", tuple(spec.get("groups") or ())), spec)


def _rules(call: Call, body: Object, users: Callable[[str], User | None]) -> dict[str, Any]:
    if not (body.get("spec") or {}).get("namespace"):
        raise BadRequest("no namespace on request")
    every = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}] if call.user.master else []
    anything = [{"verbs": ["*"], "nonResourceURLs": ["*"]}] if call.user.master else []
    readable = [] if call.user.master else _readable(call.user)
    return {
        "resourceRules": [*every, *readable, *_SELF],
        "nonResourceRules": [_HEALTH, *anything, _LOOK],
        "incomplete": False,
    }


_SELF: tuple[dict[str, Any], ...] = (
    {
        "verbs": ["create"],
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
    },
    {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
)
"""Everybody may ask about himself."""
_HEALTH = {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]}
_LOOK: dict[str, list[str]] = {
    "verbs": ["get"],
    "nonResourceURLs": "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/".split(),
}


def _readable(user: User) -> list[dict[str, Any]]:
    """What a user who is no master may read, by API group."""
    groups: dict[str, list[str]] = {}
    for kind in kinds.KINDS:
        for resource in (kind.plural, *(f"{kind.plural}/{part}" for part in sorted(kind.subresources))):
            if user.may("get", resource):
                groups.setdefault(kind.group, []).append(resource)
    return [{"verbs": sorted(READS), "apiGroups": [group], "resources": found} for group, found in groups.items()]


def _info(user: User) -> dict[str, Any]:
    uid = {"uid": user.uid} if user.uid else {}
    return {"username": user.name, **uid, "groups": list(user.groups)}


def _self(call: Call, body: Object, users: Callable[[str], User | None]) -> dict[str, Any]:
    return {"userInfo": _info(call.user)}


def _token(call: Call, body: Object, users: Callable[[str], User | None]) -> dict[str, Any]:
    token = (body.get("spec") or {}).get("token")
    if not token:
        raise BadRequest("token is required for TokenReview in authentication")
    found = users(token)
    if found is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": _info(found)}


AUTHORIZATION, AUTHENTICATION = ("authorization.k8s.io", "v1"), ("authentication.k8s.io", "v1")

REVIEWS: dict[tuple[str, str, str], tuple[str, Answer, bool]] = {
    (*AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", _own_access, True),
    (*AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", _rules, True),
    (*AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", _access, False),
    (*AUTHORIZATION, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", _access, False),
    (*AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", _self, True),
    (*AUTHENTICATION, "tokenreviews"): ("TokenReview", _token, False),
}
"""Path → kind, who answers, and whether everybody may ask (about himself)."""


def review(call: Call, place: tuple[str, str, str], body: Any, users: Callable[[str], User | None]) -> Object:
    """The answered review. Raises Forbidden, BadRequest."""
    kind, answer, everybody = REVIEWS[place]
    if not everybody and not call.user.master:
        raise Forbidden(
            f'{place[2]}.{place[0]} is forbidden: User "{call.user.name}" cannot create resource "{place[2]}"'
        )
    if not isinstance(body, dict):
        raise BadRequest(f"the body is a {kind}")
    name = types.name_of(place[0], place[1], kind)
    try:
        read = decoding.decode(name, body, decoding.Walk(fill=False))
    except BadRequest as error:
        raise BadRequest(f'{kind} in version "{place[1]}" cannot be handled as a {kind}: {error.message}') from None
    status = answer(call, read, users)
    meta = read.get("metadata") or {}
    if kind == "SelfSubjectReview":
        meta = {**meta, "creationTimestamp": objects.timestamp(time.time())}
    spec = {} if kind == "SelfSubjectRulesReview" else read.get("spec")
    shown = {"kind": kind, "apiVersion": f"{place[0]}/{place[1]}", "metadata": meta}
    return {**shown, **({"spec": spec} if spec is not None else {}), "status": status}
