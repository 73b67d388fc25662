"""Logs of pods on nodes with kubelets of other programs: requested as kube-apiserver does, at the node's own address.

Such nodes exist if a server was started `--without kubelet` and a program that acts as a kubelet registers itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from rowlock.api import LogOptions, View
from rowlock.errors import Internal, NotFound, Unsupported, not_found
from rowlock.kinds import NODE, POD
from rowlock.objects import dig, timestamp

NO_KUBELET = "no kubelet runs in this server (--without kubelet), and the pod's node names no port of one: there are no logs to read"
_PATIENCE_S = 30.0
"""Seconds to wait for the connection, and for each chunk of a log that is not followed."""
_MESSAGE_LIMIT = 1000
"""Bytes of a refusal that are shown."""


async def read_remote_log(view: View, namespace: str, pod_name: str, options: LogOptions) -> AsyncIterator[bytes]:
    """Reads a log from the kubelet of the pod's node. Sends no credentials and does not verify the certificate, like kube-apiserver
    without a CA for kubelets: only admins write the addresses of nodes. Raises ApiError."""
    pod = view.get(POD, namespace, pod_name)
    if pod is None:
        raise not_found(POD.plural, pod_name)
    node_name = str(dig(pod, "spec.nodeName") or "")
    address = _address(view.get(NODE, "", node_name) or {})
    if not address:
        raise Unsupported(NO_KUBELET)
    import httpx  # imported late: most servers have a kubelet of their own

    url = f"https://{address}/containerLogs/{namespace}/{pod_name}/{options.container}"
    wait = httpx.Timeout(_PATIENCE_S, read=None if options.follow else _PATIENCE_S)
    try:
        async with (
            httpx.AsyncClient(verify=False, trust_env=False, timeout=wait) as client,
            client.stream("GET", url, params=_query(options)) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise await _refusal(node_name, answer)
            async for chunk in answer.aiter_bytes():
                yield chunk
    except httpx.HTTPError as error:
        why = f"the kubelet of node {node_name} at {address} does not answer: {str(error) or type(error).__name__}"
        raise Internal(why) from None


def _address(node: dict[str, Any]) -> str:
    """host:port of the node's kubelet; "" if the node does not state it."""
    port = dig(node, "status.daemonEndpoints.kubeletEndpoint.Port")
    addresses = {one.get("type"): one.get("address") for one in dig(node, "status.addresses") or ()}
    host = addresses.get("InternalIP") or addresses.get("Hostname")
    if not host or not port:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _query(options: LogOptions) -> dict[str, str]:
    """The parameters of a kubelet's /containerLogs."""
    found = {
        "follow": options.follow,
        "previous": options.previous,
        "timestamps": options.timestamps,
        "tailLines": options.tail,
        "limitBytes": options.limit_bytes,
        "sinceTime": None if options.since is None else timestamp(options.since),
    }
    given = {key: value for key, value in found.items() if value is not None and value is not False}
    return {key: "true" if value is True else str(value) for key, value in given.items()}


async def _refusal(node_name: str, answer: Any) -> Internal | NotFound:
    text = b""
    async for chunk in answer.aiter_bytes():
        text += chunk
        if len(text) >= _MESSAGE_LIMIT:
            break
    said = text[:_MESSAGE_LIMIT].decode(errors="replace").strip()
    kind = NotFound if answer.status_code == 404 else Internal
    return kind(f"the kubelet of node {node_name} answered {answer.status_code}: {said}")
