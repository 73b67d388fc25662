"""Access and token reviews: may this user do that, who am I, whose token is this. They are not stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from rowlock import objects
from rowlock.apiserver.http import request_body
from rowlock.apiserver.http.requests import Call
from rowlock.apiserver.schema import types
from rowlock.authentication.token_review import ReviewToken
from rowlock.authentication.users import User
from rowlock.authorization.authorizer import Attributes, Authorizer, require
from rowlock.documents.field_errors import invalid_value
from rowlock.errors import BadRequest, Cause, invalid
from rowlock.objects import Object

ReviewHandler = Callable[[Call, Object, ReviewToken], dict[str, Any]]


def _authorize(authorizer: Authorizer, user: User, spec: Object) -> dict[str, Any]:
    """The status that says whether the user may do what the review's spec asks about."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes") or {}
    if resource is None:
        attributes = Attributes(path.get("verb") or "", path=path.get("path") or "/")
    else:
        parts = (resource.get(part) or "" for part in ("verb", "group", "resource", "subresource", "namespace", "name"))
        attributes = Attributes(*parts)
    decision = authorizer.authorize(user, attributes)
    return {"allowed": decision.allowed, **({"reason": decision.reason} if decision.reason else {})}


def _spec_causes(kind: str, spec: Object) -> Iterator[Cause]:
    """A review must have exactly one kind of attributes, and a user or groups."""
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


def _local_causes(spec: Object, namespace: str) -> Iterator[Cause]:
    """A local review must be about its own namespace."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and (resource.get("namespace") or "") != namespace:
        where = "spec.resourceAttributes.namespace"
        yield invalid_value(where, resource.get("namespace") or "", "must match metadata.namespace")
    if path is not None:
        shown = {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
        yield invalid_value("spec.nonResourceAttributes", shown, "disallowed on this kind of request")


def _review_own_access(call: Call, body: Object, review_token: ReviewToken) -> dict[str, Any]:
    return _authorize(call.authorizer, call.user, _checked_spec("SelfSubjectAccessReview", body))


def _checked_spec(kind: str, body: Object, namespace: str = "") -> Object:
    """The validated spec of a review; `namespace`: that of a local one. Raises Invalid."""
    spec: Object = body.get("spec") or {}
    causes = list(_spec_causes(kind, spec))
    if namespace:
        causes += _local_causes(spec, namespace)
    if causes:
        error = invalid("", "", causes, AUTHORIZATION[0])
        error.details.pop("kind", None)  # a real server does not name the kind
        raise error
    return spec


def _review_access(call: Call, body: Object, review_token: ReviewToken) -> dict[str, Any]:
    spec = _checked_spec("SubjectAccessReview", body, _namespace_of(call))
    return _authorize(call.authorizer, User(spec.get("user") or "", tuple(spec.get("groups") or ())), spec)


def _namespace_of(call: Call) -> str:
    """The namespace in the path of a local review; "" for others."""
    parts = call.path.strip("/").split("/")
    return parts[4] if parts[3] == "namespaces" else ""


def _review_rules(call: Call, body: Object, review_token: ReviewToken) -> dict[str, Any]:
    namespace = (body.get("spec") or {}).get("namespace")
    if not namespace:
        raise BadRequest("no namespace on request")
    rules = call.authorizer.rules_for(call.user, namespace)
    errors = " ".join(error.message for error in call.authorizer.missing_roles(call.user, namespace))
    return {
        "resourceRules": [_pick(rule, _RESOURCE_FIELDS) for rule in rules if rule.get("resources")],
        "nonResourceRules": [_pick(rule, _PATH_FIELDS) for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
        **({"evaluationError": errors} if errors else {}),
    }


_RESOURCE_FIELDS, _PATH_FIELDS = ("verbs", "apiGroups", "resources", "resourceNames"), ("verbs", "nonResourceURLs")


def _pick(rule: Object, fields: tuple[str, ...]) -> Object:
    return {field: rule[field] for field in fields if rule.get(field)}


def _user_info(user: User) -> dict[str, Any]:
    uid = {"uid": user.uid} if user.uid else {}
    extra = {"extra": {key: list(texts) for key, texts in user.extra.items()}} if user.extra else {}
    return {"username": user.name, **uid, "groups": list(user.groups), **extra}


def _review_self(call: Call, body: Object, review_token: ReviewToken) -> dict[str, Any]:
    return {"userInfo": _user_info(call.user)}


def _review_token(call: Call, body: Object, review_token: ReviewToken) -> dict[str, Any]:
    token = (body.get("spec") or {}).get("token")
    if not token:
        raise BadRequest("token is required for TokenReview in authentication")
    found = review_token(token, (body.get("spec") or {}).get("audiences") or ())
    if found.user is None:
        return {"user": {}, "error": found.error}
    audiences = {"audiences": list(found.audiences)} if found.audiences else {}
    return {"authenticated": True, "user": _user_info(found.user), **audiences}


AUTHORIZATION, AUTHENTICATION = ("authorization.k8s.io", "v1"), ("authentication.k8s.io", "v1")

REVIEWS: dict[tuple[str, str, str], tuple[str, ReviewHandler]] = {
    (*AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", _review_own_access),
    (*AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", _review_rules),
    (*AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", _review_access),
    (*AUTHORIZATION, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", _review_access),
    (*AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", _review_self),
    (*AUTHENTICATION, "tokenreviews"): ("TokenReview", _review_token),
}
"""(group, version, resource) → kind and handler."""


def authorize_review(call: Call, group_version_resource: tuple[str, str, str], namespace: str) -> None:
    """Check the right to create a review; every user may create self reviews. Raises Forbidden."""
    group, _, plural = group_version_resource
    require(call.authorizer, call.user, Attributes("create", group, plural, namespace=namespace))


def review(call: Call, group_version_resource: tuple[str, str, str], body: Any, review_token: ReviewToken) -> Object:
    """The review with its status. Raises BadRequest, Invalid."""
    (group, version, _), (kind, handler) = group_version_resource, REVIEWS[group_version_resource]
    decoded = request_body.decode_typed(body, types.type_name(group, version, kind))
    status = handler(call, decoded, review_token)
    meta = decoded.get("metadata") or {}
    if kind == "LocalSubjectAccessReview":
        meta = {**meta, "namespace": _namespace_of(call)}
    if kind == "SelfSubjectReview":
        meta = {**meta, "creationTimestamp": objects.timestamp(time.time())}
    spec = {} if kind == "SelfSubjectRulesReview" else decoded.get("spec")
    head = {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": meta}
    return {**head, **({"spec": spec} if spec is not None else {}), "status": status}
