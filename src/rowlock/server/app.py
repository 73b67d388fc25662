"""The door of the REST API: routes, one shape of errors, and `Face`, which `serve.py` wires in.

    face = Face(api, Settings(token=..., user=...))
    app = Starlette(routes=[*face.routes, *others])        # before the Kubernetes API's catch-all
    tasks.create_task(face.run())                          # keeps the catalog; reads wait for its first picture

An endpoint takes a `Call` and returns JSON (or a Response); every ApiError becomes Run:ai's Error body here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rowlock.api import Api
from rowlock.errors import ApiError, Internal, NotFound
from rowlock.server.auth import Door
from rowlock.server.call import Answer, Asked, Call, Endpoint, Lacks, Planned, Room, Settings
from rowlock.server.catalog import Catalog
from rowlock.server.table import TABLE
from rowlock.workloads.fields import nearest

log = logging.getLogger(__name__)


def error_body(error: ApiError) -> dict[str, Any]:
    """Run:ai's Error; a refused submit also says which fields, which rules."""
    body: dict[str, Any] = {"code": error.code, "message": error.message, "details": error.reason}
    if error.causes:
        body["complianceIssues"] = [{"field": c.field, "details": c.message, "rule": c.reason} for c in error.causes]
    return body


def answer(code: int, body: Any) -> Response:
    return Response(msgspec.json.encode(body), code, media_type="application/json")


_MISTAKEN = ("workload", "distributed", "projects", "project", "cluster", "jobs")
"""What people take for resources of the REST API; else the Kubernetes API would answer that it has none."""


class Face:
    """The REST API of one cluster."""

    def __init__(
        self,
        api: Api,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.time,
        planned: Planned = None,
        inquest: Asked = None,
        lacks: Lacks = None,
        said: Callable[[str, str], str] | None = None,
    ) -> None:
        self.catalog = Catalog(api, settings.cluster_id, said)
        self._room = Room(api, self.catalog, settings, clock, planned=planned, inquest=inquest, lacks=lacks)
        self._door = Door(settings.token, settings.user, settings.guests)

    async def run(self) -> None:
        """Keep the catalog, until cancelled."""
        await self.catalog.run()

    @property
    def routes(self) -> list[Route]:
        made = [Route(path, self._endpoint(serve), methods=[method]) for method, path, serve in TABLE]
        made.append(Route("/api/v1/token", self._token, methods=["POST"]))
        prefixes = ("workloads", "org-unit", "clusters", "workload-types", "workload-priorities", "scheduler")
        made += [Route(f"/api/v1/{p}/{{rest:path}}", self._unknown) for p in (*prefixes, *_MISTAKEN)]
        made += [Route(f"/api/v1/{p}", self._unknown) for p in _MISTAKEN]
        return made

    def _endpoint(self, serve: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            async with _boundary() as outcome:
                user = self._door.enter(request)
                await self.catalog.ready()
                made = await serve(Call(self._room, request, user))
                if isinstance(made, Answer):
                    outcome.response = answer(made.code, made.body)
                else:
                    outcome.response = made if isinstance(made, Response) else answer(200, made)
            return outcome.response

        return respond

    async def _token(self, request: Request) -> Response:
        async with _boundary() as outcome:
            self._door.exchange(await Call(self._room, request, "").json())
        return outcome.response

    async def _unknown(self, request: Request) -> Response:
        async with _boundary() as outcome:
            self._door.enter(request)
            known = sorted({path for _, path, _ in TABLE})
            path = request.url.path
            raise NotFound(f"there is no {request.method} {path} in this API.{nearest(path, known)}")
        return outcome.response


@dataclass(slots=True)
class _Outcome:
    response: Response


@asynccontextmanager
async def _boundary() -> AsyncIterator[_Outcome]:
    """The only place of the REST API that catches broadly: nobody gets a stack trace for an answer."""
    outcome = _Outcome(answer(500, {"code": 500, "message": "no answer was made", "details": ""}))
    try:
        yield outcome
    except ApiError as error:
        outcome.response = answer(error.code, error_body(error))
    except Exception as error:
        log.exception("a request failed unexpectedly")
        unforeseen = Internal(f"the server failed unexpectedly ({type(error).__name__}: {error}); its log says more")
        outcome.response = answer(500, error_body(unforeseen))


def routes(api: Api, settings: Settings) -> list[Route]:
    """The routes of a `Face` nobody runs: only for looking at the table (docs, tests)."""
    return Face(api, settings).routes
