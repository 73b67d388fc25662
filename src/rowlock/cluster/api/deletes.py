"""Delete and deletecollection over HTTP: options from the body or the query, and what is answered."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from starlette.types import Send

from rowlock import kinds, objects
from rowlock.api import DeleteOptions, Propagation
from rowlock.cluster.api import bodies, requests
from rowlock.cluster.api.answers import answer, answer_object
from rowlock.cluster.api.requests import Call, Target
from rowlock.cluster.api.verbs import in_form, listed, page_of
from rowlock.cluster.storage.store import Store
from rowlock.errors import BadRequest, NotFound, Unsupported

_DELETE_FIELDS = frozenset(
    "kind apiVersion gracePeriodSeconds preconditions orphanDependents propagationPolicy dryRun".split()
)


def delete_options(call: Call) -> DeleteOptions:
    """How to delete: the body's DeleteOptions, or the query's. Raises BadRequest, Invalid."""
    given = _given(call)
    if given.get("gracePeriodSeconds") is None and "gracePeriodSeconds" in call.query:
        given["gracePeriodSeconds"] = call.number("gracePeriodSeconds")
    found = options_of(given)
    dry = found.dry_run or requests.dry_run(call, "DeleteOptions")
    return replace(found, propagation=_propagation(call, given), dry_run=dry)


def options_of(given: dict[str, Any]) -> DeleteOptions:
    """What a DeleteOptions object says, but for the propagation. Raises BadRequest, Invalid."""
    grace = given.get("gracePeriodSeconds")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise BadRequest("gracePeriodSeconds is a whole number")
    asked = given.get("dryRun") or []
    if not isinstance(asked, list):
        raise BadRequest("dryRun is a list")
    pre = bodies.part(given, "preconditions")
    revision = str(pre.get("resourceVersion") or "")
    if revision and not revision.isdigit():
        raise BadRequest(f'preconditions.resourceVersion "{revision}" is not a resource version')
    return DeleteOptions(
        grace=grace,
        uid=str(pre.get("uid") or ""),
        revision=int(revision) if revision else None,
        dry_run=requests.all_dry(asked, "DeleteOptions"),
    )


def _given(call: Call) -> dict[str, Any]:
    """The body's options that say something."""
    if not call.body.strip():
        return {}
    found = bodies.document(call)
    if not isinstance(found, dict):
        raise BadRequest("the body of a delete is a DeleteOptions object")
    for name in found:
        if name not in _DELETE_FIELDS and name != "ignoreStoreReadErrorWithClusterBreakingPotential":
            raise BadRequest(f'DeleteOptions has no field "{name}"')
    return {k: v for k, v in found.items() if v is not None}


def _propagation(call: Call, given: dict[str, Any]) -> Propagation | None:
    policy = given.get("propagationPolicy") or call.query.get("propagationPolicy") or None
    orphan = given.get("orphanDependents", call.flag("orphanDependents") if "orphanDependents" in call.query else None)
    if orphan is not None and policy is not None:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        raise requests.wrong_option("DeleteOptions", "propagationPolicy", text)
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    if policy not in (None, "Background", "Foreground", "Orphan"):
        known = '"Foreground", "Background", "Orphan", "nil"'
        text = f'Unsupported value: "{policy}": supported values: {known}'
        raise requests.wrong_option("DeleteOptions", "propagationPolicy", text)
    return policy  # type: ignore[return-value]  # one of the three, or none: checked above


_SHOWN = frozenset(
    {kinds.POD, kinds.SERVICE, kinds.SERVICE_ACCOUNT, kinds.PERSISTENT_VOLUME_CLAIM, kinds.RESOURCE_QUOTA}
)
"""Kinds whose deletion is answered with the object, as it was last."""


async def delete(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.DELETE)
    options = delete_options(call)
    kind, form = target.kind, requests.form_of(call.header(b"accept"))
    gone = await store.delete(kind, target.namespace, target.name, options=options)
    left = store.core.current(kind, target.namespace, target.name)
    if left is not None and not options.dry_run and objects.uid(left) == objects.uid(gone):
        return await answer_object(send, in_form(call, kind, left, form), warnings=call.warnings)
    if kind in _SHOWN:
        return await answer_object(send, in_form(call, kind, gone, form), warnings=call.warnings)
    details = {"name": target.name, **({"group": kind.group} if kind.group else {}), "kind": kind.plural}
    details["uid"] = objects.uid(gone)
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    await answer_object(send, status, warnings=call.warnings)


async def delete_collection(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.DELETE_ALL)
    kind = target.kind
    if kind is kinds.NAMESPACE or (kind.namespaced and not target.namespace):
        raise Unsupported("the server does not allow this method on the requested resource")
    options = delete_options(call)
    page = await page_of(call, store, target)
    for obj in page.items:
        with suppress(NotFound):
            await store.delete(kind, *objects.key(obj), options=options)
    await answer(send, listed(call, store, target, page), warnings=call.warnings)
