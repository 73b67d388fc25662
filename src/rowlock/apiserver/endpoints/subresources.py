"""The subresources log, scale, binding and eviction. (`status` is an ordinary update.)"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from starlette.types import Receive, Send

from rowlock import kinds, objects
from rowlock.api import LogOptions, PatchType
from rowlock.apiserver.admission.chain import SPEC_REPLICAS_PATHS
from rowlock.apiserver.endpoints import verbs
from rowlock.apiserver.endpoints.deletes import options_of
from rowlock.apiserver.endpoints.list_answers import parse_include_object
from rowlock.apiserver.http import request_body, requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.apiserver.http.responses import answer, answer_object, begin_stream, end_stream, send_chunk
from rowlock.apiserver.patch import json_patch
from rowlock.apiserver.printers import tables
from rowlock.errors import ApiError, BadRequest, Cause, Invalid, Unsupported, invalid
from rowlock.http_server.disconnects import send_until_disconnect
from rowlock.objects import Object
from rowlock.storage.store import Store
from rowlock.system.pod_garbage_collector import mark_evicted

_LOG_PARAMETERS = frozenset(
    "container follow previous sinceSeconds sinceTime timestamps tailLines limitBytes pretty"
    " insecureSkipTLSVerifyBackend stream timeout".split()
)
_START_TIMEOUT = 0.5
"""Seconds that a request to follow a log waits for the container to start before it is refused."""
_CREATED_STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

UNSUPPORTED = {
    "pods/resize": "rowlock does not resize running pods: delete the pod and create it again with other resources",
    "serviceaccounts/token": "this server was started without a key for service account tokens",
}
"""Subresources that rowlock does not serve → what to do instead."""


# ---------------------------------------------------------------- log


async def log(call: Call, receive: Receive, send: Send, store: Store, target: Target) -> None:
    call.check_query(_LOG_PARAMETERS)
    pod = await store.get(kinds.POD, target.namespace, target.name)
    options = log_options(call, pod)
    if not options.follow and not objects.dig(pod, "spec.nodeName"):
        return await answer(send, b"", code=204)
    chunks = cast("AsyncGenerator[bytes]", store.log(target.namespace, target.name, options))
    try:
        await send_until_disconnect(_copy_log(chunks, send, call.warnings), receive)
    except ApiError:
        pod = await store.get(kinds.POD, target.namespace, target.name)
        if objects.dig(pod, "spec.nodeName"):
            raise
        await answer(send, b"", code=204)


async def _copy_log(chunks: AsyncGenerator[bytes], send: Send, warnings: list[str]) -> None:
    """Send chunk by chunk, reading each after the previous one was sent: a slow reader keeps one chunk in memory."""
    started = False
    async with aclosing(chunks):
        async for chunk in chunks:  # an error before the first chunk can still become a Status answer
            if not started:
                started = True
                await begin_stream(send, b"text/plain", warnings)
            await send_chunk(send, chunk)
    if not started:
        await begin_stream(send, b"text/plain", warnings)
    await end_stream(send)


def log_options(call: Call, pod: Object) -> LogOptions:
    """The log options in the query; the container may be omitted if there is only one. Raises BadRequest, Invalid."""
    if call.query.get("stream") not in (None, "", "All"):
        raise Unsupported("rowlock keeps stdout and stderr of a container as one stream: stream=All")
    tail, since = call.number("tailLines"), call.number("sinceSeconds")
    limit, moment = call.number("limitBytes"), call.query.get("sinceTime")
    if since is not None and moment:
        raise _invalid_log_options(
            pod, "sinceSeconds", "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        )
    for name, value, least in (("tailLines", tail, 0), ("limitBytes", limit, 1), ("sinceSeconds", since, 1)):
        if value is not None and value < least:
            bound = "greater than or equal to 0" if least == 0 else "greater than 0"
            raise _invalid_log_options(pod, name, f"Invalid value: {value}: must be {bound}")
    return LogOptions(
        container=_resolve_container(pod, call.query.get("container", "")),
        follow=call.flag("follow"),
        start_timeout=_START_TIMEOUT if call.flag("follow") and not call.flag("previous") else 0.0,
        previous=call.flag("previous"),
        tail=tail,
        since=time.time() - since if since is not None else _parse_since_time(moment),
        timestamps=call.flag("timestamps"),
        limit_bytes=limit,
    )


def _invalid_log_options(pod: Object, field: str, text: str) -> Invalid:
    return invalid("PodLogOptions", objects.name(pod), [Cause("FieldValueInvalid", text, field)])


def _parse_since_time(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return objects.seconds(text)
    except ValueError:
        raise BadRequest(f'sinceTime is an RFC 3339 time, not "{text}"') from None


def _resolve_container(pod: Object, requested: str) -> str:
    spec, name = pod.get("spec") or {}, objects.name(pod)
    main = [c["name"] for c in spec.get("containers") or ()]
    initial = [c["name"] for c in spec.get("initContainers") or ()]
    ephemeral = [c["name"] for c in spec.get("ephemeralContainers") or ()]
    if requested:
        if requested not in main + initial + ephemeral:
            raise BadRequest(f"container {requested} is not valid for pod {name}")
        return requested
    if len(main) == 1:
        return str(main[0])
    choice = " ".join(initial + main + ephemeral)
    raise BadRequest(f"a container name must be specified for pod {name}, choose one of: [{choice}]")


CONNECT_SUBRESOURCES = ("exec", "attach", "portforward")
"""Subresources that open a stream into a pod (`streams/`)."""


async def get_connectable_pod(call: Call, store: Store, target: Target) -> Object:
    """The pod, if a client can connect to it. Raises NotFound, BadRequest."""
    pod = await store.get(kinds.POD, target.namespace, target.name)
    if target.subresource != "portforward":
        _resolve_container(pod, call.query.get("container", ""))
    if not objects.dig(pod, "spec.nodeName"):
        raise BadRequest(f"pod {target.name} does not have a host assigned")
    return pod


# ---------------------------------------------------------------- scale


async def scale(call: Call, send: Send, store: Store, target: Target) -> None:
    """Read or change the number of workers."""
    path = SPEC_REPLICAS_PATHS.get(target.kind)
    if path is None:
        raise requests.path_not_found()
    job = await store.get(target.kind, target.namespace, target.name)
    current = _scale_of(job, path)
    if call.method == "GET":
        call.check_query(requests.READ_PARAMETERS)
        form = requests.negotiate_form(call.header(b"accept"))
        if form == "Table":
            current = tables.scale_table(job, current, time.time(), include=parse_include_object(call))
        return await answer_object(send, tables.partial_metadata(current) if form not in ("", "Table") else current)
    call.check_query(requests.PATCH_PARAMETERS if call.method == "PATCH" else requests.WRITE_PARAMETERS)
    options = requests.write_options(call, "UpdateOptions")
    requested = _requested_scale(call, current)
    replicas = objects.dig(requested, "spec.replicas", 0)
    if replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid("Scale", target.name, [Cause("FieldValueInvalid", text, "spec.replicas")], "autoscaling")
    change: Any = replicas
    for step in reversed(path.split(".")):
        change = {step: change}
    revision = objects.meta(requested).get("resourceVersion")
    if revision:
        change["metadata"] = {"resourceVersion": revision}
    updated = await store.patch(
        target.kind, target.namespace, target.name, change, subresource="scale", options=options
    )
    await answer_object(send, _scale_of(updated, path), warnings=options.warnings)


def _scale_of(job: Object, path: str) -> Object:
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


def _requested_scale(call: Call, current: Object) -> Object:
    if call.method == "PUT":
        body = request_body.decode_body(call)
    else:
        media = call.header(b"content-type").partition(";")[0].strip()
        kind: PatchType | None = verbs.PATCH_TYPES.get(media)
        if kind not in ("json", "merge", "strategic"):
            raise Unsupported("scale is patched with JSON patch or merge patch")
        patch = request_body.patch_of(call.body)
        body = json_patch.apply_json_patch(current, patch) if kind == "json" else objects.merge_patch(current, patch)
    return request_body.decode_typed(body, "io.k8s.api.autoscaling.v1.Scale")


# ---------------------------------------------------------------- binding and eviction


async def bind(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.WRITE_PARAMETERS)
    body = request_body.decode_typed(request_body.decode_body(call), "io.k8s.api.core.v1.Binding")
    meta, node_ref = objects.meta(body), body.get("target") or {}
    name = target.name or meta.get("name")
    if node_ref.get("kind") not in (None, "", "Node") or not node_ref.get("name"):
        text = (
            "Required value"
            if not node_ref.get("name")
            else f'Unsupported value: "{node_ref["kind"]}": supported values: "Node", "<empty>"'
        )
        raise invalid("Binding", str(name or ""), [Cause("FieldValueRequired", text, "target.name")])
    if not name or meta.get("name") != name:
        raise BadRequest("name in URL does not match name in Binding object")
    if requests.is_dry_run(call, "CreateOptions"):
        await store.get(kinds.POD, target.namespace, name)
    else:
        annotations, uid = objects.annotations(body), objects.uid(body)
        await store.bind(target.namespace, name, node_ref["name"], annotations=annotations, uid=uid)
    await answer_object(send, _CREATED_STATUS, code=201)


async def evict(call: Call, send: Send, store: Store, target: Target) -> None:
    call.check_query(requests.WRITE_PARAMETERS)
    body = request_body.decode_typed(request_body.decode_body(call), "io.k8s.api.policy.v1.Eviction")
    if objects.name(body) != target.name:
        raise BadRequest("name in URL does not match name in Eviction object")
    delete_options = options_of(body.get("deleteOptions") or {})
    options = replace(delete_options, dry_run=delete_options.dry_run or requests.is_dry_run(call, "CreateOptions"))
    key = objects.Key(target.namespace, target.name)
    pod = await store.get(kinds.POD, *key)
    if not options.dry_run and (mark := mark_evicted(pod, time.time())):
        await store.delete(kinds.POD, *key, options=replace(options, dry_run=True))  # a refused eviction leaves no mark
        marked = await store.patch(kinds.POD, *key, mark.patch, subresource="status")
        options = replace(options, revision=None if options.revision is None else objects.revision(marked))
    await store.delete(kinds.POD, *key, options=options)
    await answer_object(send, _CREATED_STATUS, code=201)
