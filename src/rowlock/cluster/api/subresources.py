"""Parts of objects with doors of their own: log, scale, binding, eviction. (`status` is an ordinary update.)"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from starlette.types import Receive, Send

from rowlock import kinds, objects
from rowlock.api import LogOptions, PatchType
from rowlock.cluster.api import bodies, jsonpatch, patches, requests, tables, verbs
from rowlock.cluster.api.admission import SCALES
from rowlock.cluster.api.answers import answer, answer_object, begin_stream, end_stream, stream
from rowlock.cluster.api.deletes import options_of
from rowlock.cluster.api.requests import Call, Target
from rowlock.cluster.storage.store import Store
from rowlock.errors import BadRequest, Cause, Invalid, Unsupported, invalid
from rowlock.objects import Object

_LOG = frozenset(
    "container follow previous sinceSeconds sinceTime timestamps tailLines limitBytes pretty"
    " insecureSkipTLSVerifyBackend stream timeout".split()
)
_DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


# ---------------------------------------------------------------- log


async def log(call: Call, receive: Receive, send: Send, store: Store, target: Target) -> None:
    call.only(_LOG)
    pod = await store.get(kinds.POD, target.namespace, target.name)
    options = log_options(call, pod)
    if not objects.dig(pod, "spec.nodeName"):
        return await answer(send, b"", code=204)
    leaver = asyncio.create_task(_left(receive))  # from the beginning: a log may be quiet for hours
    try:
        async with aclosing(cast("AsyncGenerator[bytes]", store.log(target.namespace, target.name, options))) as chunks:
            await _copied(chunks, leaver, send, call.warnings)
    finally:
        leaver.cancel()
        await asyncio.gather(leaver, return_exceptions=True)


async def _copied(chunks: AsyncGenerator[bytes], leaver: asyncio.Task[None], send: Send, warnings: list[str]) -> None:
    """Piece by piece, each when the one before it is on its way: whoever reads slowly has one in memory. Until the end,
    or until the client leaves."""
    begun = False
    while True:
        piece = asyncio.ensure_future(anext(chunks, None))
        try:
            await asyncio.wait({piece, leaver}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not piece.done():
                piece.cancel()
                await asyncio.gather(piece, return_exceptions=True)
        if leaver.done():
            return
        found = piece.result()  # an error of the first comes before the answer has begun
        if not begun:
            begun = True
            await begin_stream(send, b"text/plain", warnings)
        if found is None:
            return await end_stream(send)
        await stream(send, found)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def log_options(call: Call, pod: Object) -> LogOptions:
    """kubectl's flags; the container may be left out where there is only one. Raises BadRequest, Invalid."""
    if call.query.get("stream") not in (None, "", "All"):
        raise Unsupported("rowlock keeps stdout and stderr of a container as one stream: stream=All")
    tail, since = call.number("tailLines"), call.number("sinceSeconds")
    limit, moment = call.number("limitBytes"), call.query.get("sinceTime")
    if since is not None and moment:
        raise _bad_log(pod, "sinceSeconds", "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified")
    for name, value, least in (("tailLines", tail, 0), ("limitBytes", limit, 1), ("sinceSeconds", since, 1)):
        if value is not None and value < least:
            bound = "greater than or equal to 0" if least == 0 else "greater than 0"
            raise _bad_log(pod, name, f"Invalid value: {value}: must be {bound}")
    return LogOptions(
        container=_container(pod, call.query.get("container", "")),
        follow=call.flag("follow"),
        previous=call.flag("previous"),
        tail=tail,
        since=time.time() - since if since is not None else _moment(moment),
        timestamps=call.flag("timestamps"),
        limit_bytes=limit,
    )


def _bad_log(pod: Object, field: str, text: str) -> Invalid:
    cause = Cause("FieldValueInvalid", text, field)
    name = objects.name(pod)
    details = {"name": name, "kind": "PodLogOptions"}
    return Invalid(f'PodLogOptions "{name}" is invalid: {field}: {text}', causes=[cause], details=details)


def _moment(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return objects.seconds(text)
    except ValueError:
        raise BadRequest(f'sinceTime is an RFC 3339 time, not "{text}"') from None


def _container(pod: Object, asked: str) -> str:
    spec, name = pod.get("spec") or {}, objects.name(pod)
    main = [c["name"] for c in spec.get("containers") or ()]
    initial = [c["name"] for c in spec.get("initContainers") or ()]
    if asked:
        if asked not in main + initial:
            raise BadRequest(f"container {asked} is not valid for pod {name}")
        return asked
    if len(main) == 1:
        return str(main[0])
    choice = f"choose one of: [{' '.join(main)}]"
    if initial:
        choice += f" or one of the init containers: [{' '.join(initial)}]"
    raise BadRequest(f"a container name must be specified for pod {name}, {choice}")


DOORS = ("exec", "attach", "portforward")
"""Ways into a pod: websockets, see `streaming.py`."""


async def enter(call: Call, store: Store, target: Target) -> Object:
    """The pod, if a client can go into it. Raises NotFound, BadRequest."""
    pod = await store.get(kinds.POD, target.namespace, target.name)
    if target.subresource != "portforward":
        _container(pod, call.query.get("container", ""))
    if not objects.dig(pod, "spec.nodeName"):
        raise BadRequest(f"pod {target.name} does not have a host assigned")
    return pod


# ---------------------------------------------------------------- scale


async def scale(call: Call, send: Send, store: Store, target: Target) -> None:
    """Read or change the number of workers."""
    path = SCALES.get(target.kind)
    if path is None:
        raise requests.nowhere()
    job = await store.get(target.kind, target.namespace, target.name)
    shown = _scale(job, path)
    if call.method == "GET":
        call.only(requests.READ)
        form = requests.form_of(call.header(b"accept"))
        if form.view == "Table":
            shown = tables.scale_table(job, shown, time.time(), include=verbs.include(call))
        return await answer_object(send, tables.partial(shown) if form.view not in ("", "Table") else shown)
    call.only(requests.PATCH if call.method == "PATCH" else requests.WRITE)
    options = requests.write_options(call, "UpdateOptions")
    wanted = _wanted_scale(call, shown)
    replicas = objects.dig(wanted, "spec.replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise BadRequest('Scale in version "v1" cannot be handled as a Scale: spec.replicas is a whole number')
    if replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid("Scale", target.name, [Cause("FieldValueInvalid", text, "spec.replicas")], "autoscaling")
    change: Any = replicas
    for step in reversed(path.split(".")):
        change = {step: change}
    revision = objects.meta(wanted).get("resourceVersion")
    if revision:
        change["metadata"] = {"resourceVersion": revision}
    made = await store.patch(target.kind, target.namespace, target.name, change, subresource="scale", options=options)
    await answer_object(send, _scale(made, path), warnings=options.warnings)


def _scale(job: Object, path: str) -> Object:
    meta = {
        name: objects.meta(job)[name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in objects.meta(job)
    }
    worker = objects.dig(job, "status.replicaStatuses.Worker", {})
    status = {
        "replicas": worker.get("active", 0),
        **({"selector": worker["selector"]} if worker.get("selector") else {}),
    }
    spec = {"replicas": objects.dig(job, path)} if objects.dig(job, path) else {}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}


def _wanted_scale(call: Call, shown: Object) -> Object:
    if call.method == "PUT":
        found = bodies.document(call)
    else:
        media = call.header(b"content-type").partition(";")[0].strip()
        kind: PatchType | None = verbs.PATCHES.get(media)
        if kind not in ("json", "merge", "strategic"):
            raise Unsupported("scale is patched with JSON patch or merge patch")
        patch = bodies.patch_of(call.body)
        found = jsonpatch.patched(shown, patch) if kind == "json" else patches.merge(shown, patch)
    if not isinstance(found, dict) or not isinstance(found.get("spec") or {}, dict):
        raise BadRequest("the body is a Scale")
    return found


# ---------------------------------------------------------------- binding and eviction


async def bind(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.WRITE)
    body = bodies.document(call)
    if not isinstance(body, dict):
        raise BadRequest("the body is a Binding")
    meta, goal = bodies.part(body, "metadata"), bodies.part(body, "target")
    name = target.name or meta.get("name")
    if goal.get("kind") not in (None, "", "Node") or not goal.get("name"):
        text = (
            "Required value"
            if not goal.get("name")
            else f'Unsupported value: "{goal["kind"]}": supported values: "Node", "<empty>"'
        )
        raise invalid("Binding", str(name or ""), [Cause("FieldValueRequired", text, "target.name")])
    if not isinstance(name, str) or meta.get("name") != name:
        raise BadRequest("name in URL does not match name in Binding object")
    if requests.dry_run(call, "CreateOptions"):
        await store.get(kinds.POD, target.namespace, name)
    else:
        notes = bodies.part(meta, "annotations")
        await store.bind(target.namespace, name, str(goal["name"]), annotations=notes, uid=str(meta.get("uid") or ""))
    await answer_object(send, _DONE, code=201)


async def evict(call: Call, send: Send, store: Store, target: Target) -> None:
    call.only(requests.WRITE)
    body = bodies.document(call)
    if not isinstance(body, dict):
        raise BadRequest("the body is an Eviction")
    if bodies.part(body, "metadata").get("name") != target.name:
        raise BadRequest("name in URL does not match name in Eviction object")
    given = options_of(bodies.part(body, "deleteOptions"))
    options = replace(given, dry_run=given.dry_run or requests.dry_run(call, "CreateOptions"))
    await store.delete(kinds.POD, target.namespace, target.name, options=options)
    await answer_object(send, _DONE, code=201)
