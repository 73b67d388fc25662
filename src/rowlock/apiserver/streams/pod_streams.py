"""Starts exec, attach and port-forward sessions: negotiates the protocol and dispatches."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from rowlock import objects
from rowlock.apiserver.streams import port_forward, spdy_upgrade, websockets
from rowlock.apiserver.streams.websockets import NO_PROTOCOL, V4, V5, StreamingRuntime
from rowlock.errors import BadRequest
from rowlock.objects import Object


async def serve_pod_stream(scope: Scope, receive: Receive, send: Send, runtime: StreamingRuntime, pod: Object) -> None:
    """Serve one websocket, or one connection to be upgraded to SPDY/3.1, until it ends. Raises ApiError before the
    handshake."""
    forwards, upgrades = scope["path"].rstrip("/").endswith("/portforward"), scope["type"] == "http"
    if forwards and (phase := objects.phase(pod)) != "Running":
        raise BadRequest(f"unable to forward port because pod is not running. Current status={phase}")
    options = None if forwards else websockets.parse_exec_options(scope["query_string"])
    if upgrades:
        supported = [spdy_upgrade.FORWARD_PROTOCOL if forwards else V4]
        version = _negotiate_protocol(spdy_upgrade.offered_protocols(scope), supported, "X-Stream-Protocol-Version")
        connection = spdy_upgrade.UpgradedConnection(scope["extensions"]["rowlock.take_over"]["call"], version)
        receive, send = connection.receive, connection.send
    else:
        supported = [*([port_forward.TUNNEL_PROTOCOL] if forwards else []), V5, V4, NO_PROTOCOL]
        version = _negotiate_protocol(scope.get("subprotocols") or [], supported, "Sec-WebSocket-Protocol")
    try:
        if options is not None:
            channels = (
                spdy_upgrade.SpdyChannels(receive, send, options)
                if upgrades
                else websockets.WebSocketChannels(receive, send, version)
            )
            opening = websockets.open_session(scope["path"], runtime, pod, options)
            await websockets.serve_session(channels, opening, options, errors_in_stream=version == V5)
        elif version in (port_forward.TUNNEL_PROTOCOL, spdy_upgrade.FORWARD_PROTOCOL):
            await port_forward.Tunnel(receive, send, runtime, pod).run()
        else:
            socket = websockets.WebSocketChannels(receive, send, version)
            await port_forward.serve_channels(scope["query_string"], socket, runtime, pod)
    except OSError:
        if not upgrades:
            raise
    finally:  # the HTTP server no longer handles an upgraded connection, so close it here
        if upgrades:
            connection.finish()


def _negotiate_protocol(offered: Sequence[str], supported: Sequence[str], header: str) -> str:
    """The first of the supported protocols that the client offers. Raises BadRequest."""
    for protocol in supported:
        if protocol in (offered or [NO_PROTOCOL]):
            return protocol
    known, named = " or ".join(filter(None, supported)), ", ".join(offered) or "none"
    raise BadRequest(f"the connection needs a {header} of {known}, not {named}")
