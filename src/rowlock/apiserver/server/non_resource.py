"""Paths that name no resource: health, version, metrics, discovery, OpenAPI. Kubernetes' non-resource URLs."""

from __future__ import annotations

from starlette.types import Send

from rowlock.apiserver.discovery import groups, openapi
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, path_not_found
from rowlock.apiserver.http.responses import answer, answer_document, answer_object
from rowlock.apiserver.server.settings import ApiServerSettings
from rowlock.authorization.authorizer import Attributes, require
from rowlock.errors import NotAcceptable

_TEXT = b"text/plain; charset=utf-8"
_HEALTH_CHECKS: tuple[list[str], ...] = ([], ["ping"], ["log"], ["etcd"])
_HEALTH_ENDPOINTS = ("healthz", "livez", "readyz")
_OPEN_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/version"})
_ROOT_PATHS = ("/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version")


def is_open(path: str) -> bool:
    """Whether the path may be requested without a token."""
    return path in _OPEN_PATHS or path.startswith(("/livez/", "/readyz/", "/healthz/"))


async def serve_non_resource(call: Call, send: Send, settings: ApiServerSettings, parts: list[str]) -> None:
    """Answer a GET of the path split into `parts`. Raises NotFound, Forbidden, NotAcceptable."""
    head, rest = (parts[0], parts[1:]) if parts else ("", [])
    is_health = head in _HEALTH_ENDPOINTS
    if call.path not in _OPEN_PATHS and not is_health:
        require(call.authorizer, call.user, Attributes("get", path=call.path))
    if is_health and rest in _HEALTH_CHECKS:
        is_ready = head != "readyz" or rest not in ([], ["etcd"]) or settings.is_ready()
        await _serve_health(call, send, head, is_ready=is_ready)
    elif head == "metrics" and not rest and settings.render_metrics is not None:
        body, media = await settings.render_metrics(call.header(b"accept"))
        await answer(send, body, media=media.encode())
    elif head == "version" and not rest:
        await answer(send, groups.version_text())
    elif head == "openapi":
        await _serve_openapi(call, send, rest)
    elif head in ("api", "apis"):
        await _serve_discovery(call, send, parts, settings.address)
    elif not head:
        paths = ["/api", "/api/v1", "/apis", *(f"/apis/{group}" for group in groups.groups()), *_ROOT_PATHS]
        await answer_object(send, {"paths": paths})
    else:
        raise path_not_found()


async def _serve_health(call: Call, send: Send, endpoint: str, *, is_ready: bool) -> None:
    text = f"[+]ping ok\n[+]etcd ok\n{endpoint} check passed\n" if "verbose" in call.query else "ok"
    if not is_ready:  # without details, because no token is needed
        text = f"[+]ping ok\n[-]etcd failed: the disk refused the last write, the server's log says why\n{endpoint} check failed\n"
    await answer(send, text.encode(), code=200 if is_ready else 500, media=_TEXT)


async def _serve_discovery(call: Call, send: Send, parts: list[str], address: str) -> None:
    has_group = parts[0] == "apis"
    if len(parts) == 1:
        if version := requests.aggregated_discovery_version(call.header(b"accept")):
            media = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList".encode()
            return await answer_document(send, groups.encode_aggregated_discovery(has_group, version), call, media)
        return await answer_object(send, groups.group_list() if has_group else groups.api_versions(address))
    if has_group and len(parts) == 2 and parts[1] in groups.groups():
        return await answer_object(send, groups.group(parts[1]))
    group_version = tuple(parts[1:]) if has_group else ("", *parts[1:])
    if group_version not in groups.resources():
        raise path_not_found()
    await answer_object(send, groups.resource_list(*group_version))


async def _serve_openapi(call: Call, send: Send, parts: list[str]) -> None:
    if parts == ["v3"]:
        return await answer_object(send, openapi.v3_index())
    if parts != ["v2"] and parts[:1] != ["v3"]:
        raise path_not_found()
    accept = call.header(b"accept")
    if parts == ["v2"] and openapi.PROTOBUF in accept:
        return await answer(send, openapi.v2_protobuf(), media=openapi.PROTOBUF.replace("@", ".").encode())
    if accept and "json" not in accept and "*/*" not in accept:
        raise NotAcceptable("only the following media types are accepted: application/json")
    try:
        body = openapi.encode_document("v2" if parts == ["v2"] else "/".join(parts[1:]))
    except (KeyError, IndexError):
        raise path_not_found() from None
    await answer_document(send, body, call)
