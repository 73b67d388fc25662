"""What an endpoint takes and gives: a `Call` in a `Room`, answered with JSON, an `Answer` or a Response."""

from __future__ import annotations

import getpass
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request

from rowlock.api import Api
from rowlock.errors import BadRequest
from rowlock.objects import Object
from rowlock.scheduling.snapshot import Snapshot
from rowlock.server.auth import Guests
from rowlock.server.catalog import Catalog
from rowlock.workloads.fields import nearest

LARGEST = 4 * 1024 * 1024
"""Bytes of a request body."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the face must be told. `cluster_id` "" takes the uid of the kube-system namespace."""

    token: str = ""
    user: str = field(default_factory=getpass.getuser)
    version: str = ""
    cluster_id: str = ""
    cluster_name: str = "rowlock"
    guests: Guests | None = None
    """Who may come in besides the owner, where others can reach the server."""


Planned = Callable[[], Snapshot] | None
"""What the scheduler would plan from now; None where none of ours runs."""
Asked = Callable[[Object], Awaitable[dict[str, Any]]] | None
"""What is known of how a job's ranks died and where they stand; None where no node of ours runs."""

Lacks = Callable[[Object], Awaitable[list[str]]] | None
"""Why programs of such a pod could not begin, for want of images; None where no node of ours runs."""


@dataclass(frozen=True, slots=True)
class Room:
    """What every endpoint works with."""

    api: Api
    catalog: Catalog
    settings: Settings
    clock: Callable[[], float] = time.time
    ids: Callable[[], str] = lambda: str(uuid.uuid4())
    planned: Planned = None
    inquest: Asked = None
    lacks: Lacks = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request, authenticated."""

    room: Room
    request: Request
    user: str

    @property
    def path(self) -> dict[str, Any]:
        return self.request.path_params

    @property
    def query(self) -> dict[str, str]:
        return dict(self.request.query_params)

    async def json(self) -> Any:
        """The body. Raises BadRequest when it is not JSON."""
        length = self.request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > LARGEST:
            raise BadRequest(f"the body has {length} bytes; {LARGEST} are allowed")
        raw = await self.request.body()
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError as error:
            raise BadRequest(f"the body is not JSON: {error}") from None

    def only(self, *known: str) -> dict[str, str]:
        """The query, with nothing in it but these. Raises BadRequest."""
        for name in self.query:
            if name.rstrip("?") and name not in known:
                raise BadRequest(f"there is no query parameter {name!r}.{nearest(name, known)}")
        return self.query


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON with a status other than 200."""

    code: int
    body: Any


Endpoint = Callable[[Call], Awaitable[Any]]
