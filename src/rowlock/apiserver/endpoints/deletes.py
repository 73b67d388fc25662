"""Delete and deletecollection over HTTP: options from the body or the query, and the answers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from starlette.types import Send

from rowlock import kinds, objects
from rowlock.api import DeleteOptions, Propagation
from rowlock.apiserver.endpoints.list_answers import answer_list
from rowlock.apiserver.endpoints.verbs import read_page, transform_object
from rowlock.apiserver.http import request_body, requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.responses import answer_object
from rowlock.apiserver.schema import types
from rowlock.errors import BadRequest, NotFound, Unsupported
from rowlock.storage.store import Store

_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


def delete_options(call: Call) -> DeleteOptions:
    """The delete options from the body's DeleteOptions, or the query. Raises BadRequest, Invalid."""
    body_options = _body_options(call)
    if body_options.get("gracePeriodSeconds") is None and "gracePeriodSeconds" in call.query:
        body_options["gracePeriodSeconds"] = call.number("gracePeriodSeconds")
    options = options_of(body_options)
    dry = options.dry_run or requests.is_dry_run(call, "DeleteOptions")
    return replace(options, propagation=_propagation(call, body_options), dry_run=dry)


def options_of(body: dict[str, Any]) -> DeleteOptions:
    """The options in a DeleteOptions object, without the propagation. Raises BadRequest, Invalid."""
    preconditions = body.get("preconditions") or {}
    revision = preconditions.get("resourceVersion", "")
    if revision and not (revision.isascii() and revision.isdigit()):
        raise BadRequest(f'preconditions.resourceVersion "{revision}" is not a resource version')
    return DeleteOptions(
        grace=body.get("gracePeriodSeconds"),
        uid=preconditions.get("uid", ""),
        revision=int(revision) if revision else None,
        dry_run=requests.parse_dry_run(body.get("dryRun", []), "DeleteOptions"),
    )


def _body_options(call: Call) -> dict[str, Any]:
    """The DeleteOptions in the body, decoded; {} for an empty body."""
    if not call.body.strip():
        return {}
    body = request_body.decode_body(call)
    known = types.schema(_DELETE_OPTIONS)["properties"]
    for name in body if isinstance(body, dict) else ():
        if name not in known:
            raise BadRequest(f'DeleteOptions has no field "{name}"')
    return request_body.decode_typed(body, _DELETE_OPTIONS)


def _propagation(call: Call, body_options: dict[str, Any]) -> Propagation | None:
    policy = body_options.get("propagationPolicy") or call.query.get("propagationPolicy") or None
    orphan = body_options.get(
        "orphanDependents", call.flag("orphanDependents") if "orphanDependents" in call.query else None
    )
    if orphan is not None and policy is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise requests.invalid_option("DeleteOptions", "propagationPolicy", text)
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    if policy not in (None, "Background", "Foreground", "Orphan"):
        supported = '"Foreground", "Background", "Orphan", "nil"'
        text = f'Unsupported value: "{policy}": supported values: {supported}'
        raise requests.invalid_option("DeleteOptions", "propagationPolicy", text)
    return policy  # type: ignore[return-value]  # one of the three, or none: checked above


_ANSWERED_WITH_OBJECT = frozenset(
    {kinds.POD, kinds.SERVICE, kinds.SERVICE_ACCOUNT, kinds.PERSISTENT_VOLUME_CLAIM, kinds.RESOURCE_QUOTA}
)
"""Kinds whose deletion is answered with the object in its last state."""


async def delete(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.DELETE_PARAMETERS)
    options = delete_options(call)
    kind, form = target.kind, requests.negotiate_form(call.header(b"accept"))
    deleted = await store.delete(kind, target.namespace, target.name, options=options)
    remaining = store.core.latest_object(kind, target.namespace, target.name)
    if remaining is not None and not options.dry_run and objects.uid(remaining) == objects.uid(deleted):
        return await answer_object(send, transform_object(call, kind, remaining, form), warnings=call.warnings)
    if kind in _ANSWERED_WITH_OBJECT:
        return await answer_object(send, transform_object(call, kind, deleted, form), warnings=call.warnings)
    details = {"name": target.name, **({"group": kind.group} if kind.group else {}), "kind": kind.plural}
    details["uid"] = objects.uid(deleted)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    await answer_object(send, status, warnings=call.warnings)


async def delete_collection(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.DELETE_COLLECTION_PARAMETERS)
    kind = target.kind
    if kind is kinds.NAMESPACE or (kind.namespaced and not target.namespace):
        raise Unsupported("the server does not allow this method on the requested resource")
    options = delete_options(call)
    page = await read_page(call, store, target)
    for obj in page.items:
        with suppress(NotFound):
            await store.delete(kind, *objects.key(obj), options=options)
    await answer_list(call, send, store, target, page)
