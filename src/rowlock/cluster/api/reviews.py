"""Questions about rights: may this user do that, who am I, whose token is this. Answers are not stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowlock import kinds
from rowlock.cluster.api.requests import Call, Target
from rowlock.cluster.api.users import READS, User
from rowlock.errors import BadRequest, Forbidden
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
        return {"allowed": True, "reason": "system:masters may do everything"}
    asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if isinstance(asked, dict):
        part = f"/{asked['subresource']}" if asked.get("subresource") else ""
        allowed = user.may(str(asked.get("verb") or ""), f"{asked.get('resource') or ''}{part}")
    else:
        allowed = isinstance(path, dict) and path.get("verb") == "get"  # discovery and health are for everybody here
    return {"allowed": True, "reason": "rowlock:viewers may read"} if allowed else {"allowed": False}


def _own_access(call: Call, body: Object, users: Callable[[str], User | None]) -> dict[str, Any]:
    spec = body.get("spec") or {}
    if ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec):
        raise BadRequest("spec has exactly one of resourceAttributes and nonResourceAttributes")
    return _verdict(call.user, spec)


def _access(call: Call, body: Object, users: Callable[[str], User | None]) -> dict[str, Any]:
    spec = body.get("spec") or {}
    if not spec.get("user") and not spec.get("groups"):
        raise BadRequest("spec.user or spec.groups is required")
    return _verdict(User(str(spec.get("user") or ""), tuple(map(str, spec.get("groups") or ()))), spec)


def _rules(call: Call, body: Object, users: Callable[[str], User | None]) -> dict[str, Any]:
    if not call.user.master:
        return {"resourceRules": _readable(call.user), "nonResourceRules": [_LOOK], "incomplete": False}
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    return {
        "resourceRules": [every],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": False,
    }


_LOOK = {"verbs": ["get"], "nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/openapi/*", "/version"]}


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
    found = users(str(token)) if token else None
    return {"authenticated": True, "user": _info(found)} if found else {"authenticated": False}


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
    if not isinstance(body, dict) or not isinstance(body.get("spec") or {}, dict):
        raise BadRequest(f"the body is a {kind}")
    status = answer(call, body, users)
    meta = body.get("metadata") or {}
    shown = {"kind": kind, "apiVersion": f"{place[0]}/{place[1]}", "metadata": meta}
    return {**shown, **({"spec": body["spec"]} if body.get("spec") else {}), "status": status}
