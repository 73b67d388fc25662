"""Questions about rights: may this user do that, who am I, whose token is this. Answers are not stored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

from rowlock import kinds, objects
from rowlock.apiserver.http import request_body
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.users import READ_VERBS, User
from rowlock.apiserver.schema import types
from rowlock.apiserver.validation.field_errors import invalid_value
from rowlock.errors import BadRequest, Cause, Forbidden, invalid
from rowlock.objects import Object

ReviewHandler = Callable[[Call, Object, Callable[[str], User | None]], dict[str, Any]]


def forbidden_error(user: User, verb: str, target: Target) -> Forbidden:
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


def _authorize(user: User, spec: Object) -> dict[str, Any]:
    """May this user do what the review's spec asks about?"""
    if user.is_master:
        return {"allowed": True}
    resource, non_resource = spec.get("resourceAttributes"), spec.get("nonResourceAttributes") or {}
    if resource is None:
        return {"allowed": non_resource.get("verb") == "get" and _is_open_path(non_resource.get("path") or "")}
    part = f"/{resource['subresource']}" if resource.get("subresource") else ""
    if user.is_allowed(resource.get("verb") or "", f"{resource.get('resource') or ''}{part}"):
        return {"allowed": True, "reason": "rowlock:viewers may read"}
    return {"allowed": False}


def _is_open_path(path: str) -> bool:
    """Discovery and health are for everybody."""
    open_paths = _DISCOVERY_RULE["nonResourceURLs"]
    return path in open_paths or any(one.endswith("*") and path.startswith(one[:-1]) for one in open_paths)


def _spec_causes(kind: str, spec: Object) -> Iterator[Cause]:
    """A question is about one thing, and about somebody."""
    resource, non_resource = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and non_resource is not None:
        shown = {"Path": non_resource.get("path") or "", "Verb": non_resource.get("verb") or ""}
        yield invalid_value(
            "spec.nonResourceAttributes", shown, "cannot be specified in combination with resourceAttributes"
        )
    elif resource is None and non_resource is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid_value("spec.resourceAttributes", None, why)
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", "", "at least one of user or group must be specified")


def _review_own_access(call: Call, body: Object, authenticate: Callable[[str], User | None]) -> dict[str, Any]:
    return _authorize(call.user, _checked_spec("SelfSubjectAccessReview", body))


def _checked_spec(kind: str, body: Object) -> Object:
    """The question, once it is one. Raises Invalid."""
    spec: Object = body.get("spec") or {}
    if causes := list(_spec_causes(kind, spec)):
        error = invalid("", "", causes, AUTHORIZATION[0])
        error.details.pop("kind", None)  # a real server does not say what of
        raise error
    return spec


def _review_access(call: Call, body: Object, authenticate: Callable[[str], User | None]) -> dict[str, Any]:
    spec = _checked_spec("SubjectAccessReview", body)
    return _authorize(User(spec.get("user") or "", tuple(spec.get("groups") or ())), spec)


def _review_rules(call: Call, body: Object, authenticate: Callable[[str], User | None]) -> dict[str, Any]:
    if not (body.get("spec") or {}).get("namespace"):
        raise BadRequest("no namespace on request")
    if call.user.is_master:
        granted = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    else:
        granted, paths = _readable_rules(call.user), []
    return {
        "resourceRules": [*granted, *_RULES_FOR_EVERYBODY["resourceRules"]],
        "nonResourceRules": [_HEALTH_RULE, *paths, _DISCOVERY_RULE],
        "incomplete": False,
    }


_RULES_FOR_EVERYBODY = json.loads(resources.files(__package__).joinpath("rules_for_everybody.json").read_bytes())
"""Everybody may ask about himself, what there is, and whether the server is well."""
_HEALTH_RULE, _DISCOVERY_RULE = _RULES_FOR_EVERYBODY["nonResourceRules"]


def _readable_rules(user: User) -> list[dict[str, Any]]:
    """What a user who is no master may read, by API group."""
    groups: dict[str, list[str]] = {}
    for kind in kinds.KINDS:
        for resource in (kind.plural, *(f"{kind.plural}/{part}" for part in sorted(kind.subresources))):
            if user.is_allowed("get", resource):
                groups.setdefault(kind.group, []).append(resource)
    return [{"verbs": sorted(READ_VERBS), "apiGroups": [group], "resources": found} for group, found in groups.items()]


def _user_info(user: User) -> dict[str, Any]:
    uid = {"uid": user.uid} if user.uid else {}
    return {"username": user.name, **uid, "groups": list(user.groups)}


def _review_self(call: Call, body: Object, authenticate: Callable[[str], User | None]) -> dict[str, Any]:
    return {"userInfo": _user_info(call.user)}


def _review_token(call: Call, body: Object, authenticate: Callable[[str], User | None]) -> dict[str, Any]:
    token = (body.get("spec") or {}).get("token")
    if not token:
        raise BadRequest("token is required for TokenReview in authentication")
    user = authenticate(token)
    if user is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": _user_info(user)}


AUTHORIZATION, AUTHENTICATION = ("authorization.k8s.io", "v1"), ("authentication.k8s.io", "v1")

REVIEWS: dict[tuple[str, str, str], tuple[str, ReviewHandler, bool]] = {
    (*AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", _review_own_access, True),
    (*AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", _review_rules, True),
    (*AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", _review_access, False),
    (*AUTHORIZATION, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", _review_access, False),
    (*AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", _review_self, True),
    (*AUTHENTICATION, "tokenreviews"): ("TokenReview", _review_token, False),
}
"""Path → kind, who answers, and whether everybody may ask (about himself)."""


def review(
    call: Call, group_version_resource: tuple[str, str, str], body: Any, authenticate: Callable[[str], User | None]
) -> Object:
    """The answered review. Raises Forbidden, BadRequest."""
    (group, version, plural), (kind, handler, everybody) = group_version_resource, REVIEWS[group_version_resource]
    if not everybody and not call.user.is_master:
        text = f'{plural}.{group} is forbidden: User "{call.user.name}" cannot create resource "{plural}"'
        raise Forbidden(text)
    decoded = request_body.decode_typed(body, types.type_name(group, version, kind))
    status = handler(call, decoded, authenticate)
    meta = decoded.get("metadata") or {}
    if kind == "SelfSubjectReview":
        meta = {**meta, "creationTimestamp": objects.timestamp(time.time())}
    spec = {} if kind == "SelfSubjectRulesReview" else decoded.get("spec")
    head = {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": meta}
    return {**head, **({"spec": spec} if spec is not None else {}), "status": status}
