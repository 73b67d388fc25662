"""`POST …/serviceaccounts/NAME/token`: issues tokens for `kubectl create token` and kubelets. The answer is not stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from starlette.types import Send

from rowlock import kinds, objects
from rowlock.apiserver.http import request_body, requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.responses import answer_object
from rowlock.authentication.service_account_tokens import (
    DEFAULT_SECONDS,
    ISSUER,
    MAX_SECONDS,
    MIN_SECONDS,
    ServiceAccountTokens,
)
from rowlock.documents.field_errors import invalid_value
from rowlock.errors import BadRequest, Cause, conflict, invalid, not_found
from rowlock.objects import Object
from rowlock.storage.store import Store

_GROUP, _VERSION, _KIND = "authentication.k8s.io", "v1", "TokenRequest"
_BINDABLE = {("v1", "Pod"): kinds.POD, ("v1", "Secret"): kinds.SECRET}


async def create_token(call: Call, send: Send, store: Store, target: Target, tokens: ServiceAccountTokens) -> None:
    """Issue a token and send it. Raises Invalid, NotFound, Conflict, BadRequest."""
    call.check_query(requests.WRITE_PARAMETERS)
    body = request_body.decode_typed(request_body.decode_body(call), "io.k8s.api.authentication.v1.TokenRequest")
    account = store.view.get(kinds.SERVICE_ACCOUNT, target.namespace, target.name)
    if account is None:
        raise not_found("serviceaccounts", target.name)
    spec: Object = body.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    seconds = DEFAULT_SECONDS if seconds is None else int(seconds)
    name = objects.name(body) if body.get("metadata") else ""
    if name and name != target.name:
        cause = invalid_value("metadata.name", name, "must match the service account name if specified")
        raise invalid(_KIND, target.name, [cause], _GROUP)
    if causes := list(_duration_causes(seconds)):
        raise invalid(_KIND, "", causes, _GROUP)
    bound = _find_bound_object(store, target, spec.get("boundObjectRef"))
    audiences = spec.get("audiences") or [ISSUER]
    meta = {"name": target.name, "namespace": target.namespace, "uid": objects.uid(account)}
    status: dict[str, Any] = {}
    if not requests.is_dry_run(call, "CreateOptions"):
        await asyncio.to_thread(tokens.load)  # takes 100 ms the first time
        issued = tokens.issue(account, audiences=audiences, seconds=seconds, bound=bound)
        status = {"token": issued.token, "expirationTimestamp": objects.timestamp(issued.expires)}
        meta["creationTimestamp"] = objects.timestamp(issued.expires - seconds)
    answer = {
        "kind": _KIND, "apiVersion": f"{_GROUP}/{_VERSION}", "metadata": meta,
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": spec.get("boundObjectRef")},
        "status": status,
    }  # fmt: skip
    await answer_object(send, answer, code=201)


def _duration_causes(seconds: int) -> Iterator[Cause]:
    if seconds < MIN_SECONDS:
        yield invalid_value("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > MAX_SECONDS:
        yield invalid_value("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")


def _find_bound_object(store: Store, target: Target, reference: Object | None) -> Object | None:
    if reference is None:
        return None
    version, kind_name = reference.get("apiVersion") or "", reference.get("kind") or ""
    kind = _BINDABLE.get((version, kind_name))
    if kind is None:
        raise BadRequest(f"cannot bind token to object of type {version}, Kind={kind_name}")
    name = str(reference.get("name") or "")
    obj = store.view.get(kind, target.namespace, name)
    if obj is None:
        raise not_found(kind.plural, name)
    if kind is kinds.POD and objects.dig(obj, "spec.serviceAccountName") != target.name:
        why = f'cannot bind token for serviceaccount "{target.name}" to pod running with different serviceaccount name.'
        raise BadRequest(why)
    uid = reference.get("uid")
    if uid and uid != objects.uid(obj):
        why = f"the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        raise conflict(kind.plural, name, why)
    return obj
