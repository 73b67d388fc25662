"""Downloads of logs, saved by the browser itself, since a log may have gigabytes. A link cannot send the session's key, so it contains a
ticket, which works once and only with the session's cookie.

    POST /api/v1/ui/downloads            {"path": "/api/v1/workloads/…/logs?…", "name": "….log"} for a ticket, with a session
    GET  /api/v1/ui/downloads/TICKET     what the REST API answers at that path, as a file
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import Message, Scope, Send

from rowlock.errors import BadRequest, NotFound
from rowlock.rest.call import JsonResult, RestCall

DOWNLOADS_PATH = "/api/v1/ui/downloads"
TICKET_LIFETIME_S = 60.0
"""Seconds for which a ticket is valid."""
TICKETS_PER_SESSION = 8
"""Most open tickets of one session; beyond it the oldest is dropped."""
_LOG_PATH = re.compile(r"(/api/v1/workloads/[^/?#]{1,300}/(?:pods/[^/?#]{1,300}/)?logs)(?:\?([^#]{0,2000}))?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,249}")


@dataclass(frozen=True, slots=True)
class Download:
    """The request that a ticket allows: the session's key, path and query, and the name of the file."""

    key: str
    path: str
    query: str
    name: str
    expires: float

    def request_scope(self, scope: Scope) -> Scope:
        """The scope of the request for the file's content."""
        path = scope.get("root_path", "") + unquote(self.path)
        return {**scope, "path": path, "raw_path": path.encode(), "query_string": self.query.encode()}

    def attach(self, send: Send) -> Send:
        """Wrap `send` so that a successful answer is saved as a file."""
        header = (b"content-disposition", f'attachment; filename="{self.name}"'.encode())

        async def send_file(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                message = {**message, "headers": [*message["headers"], header]}
            await send(message)

        return send_file


class Downloads:
    """The open tickets of one server. `clock` gives Unix seconds; `key_header` names the header with a session's key."""

    def __init__(self, clock: Callable[[], float], key_header: str) -> None:
        self._clock, self._key_header = clock, key_header
        self._open: dict[str, Download] = {}

    async def issue(self, call: RestCall) -> Any:
        """POST /api/v1/ui/downloads: issue a ticket. Raises BadRequest."""
        call.validate_query()
        body = await call.json()
        path, name = (body.get(field) if isinstance(body, dict) else None for field in ("path", "name"))
        log = _LOG_PATH.fullmatch(path) if isinstance(path, str) else None
        if log is None:
            raise BadRequest(
                "path: a download is a log: /api/v1/workloads/ID/logs or /api/v1/workloads/ID/pods/POD/logs"
            )
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadRequest(
                "name: a file has 1 to 250 letters, digits, '.', '_' and '-', and begins with none of the signs"
            )
        now, key = self._clock(), call.request.headers.get(self._key_header, "")
        self._open = {ticket: one for ticket, one in self._open.items() if one.expires > now}
        own = [ticket for ticket, one in self._open.items() if secrets.compare_digest(one.key.encode(), key.encode())]
        for ticket in own[: max(0, len(own) - TICKETS_PER_SESSION + 1)]:
            del self._open[ticket]
        ticket = secrets.token_urlsafe(24)
        self._open[ticket] = Download(key, log[1], log[2] or "", name, now + TICKET_LIFETIME_S)
        return JsonResult(201, {"ticket": ticket, "seconds": int(TICKET_LIFETIME_S)})

    def redeem(self, ticket: str) -> Download:
        """Use up a ticket and return its download. Raises NotFound if it is unknown or expired."""
        download = self._open.pop(ticket, None)
        if download is None or download.expires <= self._clock():
            raise NotFound("this download is not known: each works once, for a minute. Press DOWNLOAD again")
        return download
