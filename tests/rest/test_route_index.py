"""Routes that are found by a word of their path are those that Starlette finds one after the other."""

from __future__ import annotations

import itertools

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route, Router

from rowlock.rest.app import RouteIndex
from rowlock.rest.routes import ROUTES, paths_served


async def nothing(request: Request) -> Response:
    return Response(request.url.path)


DECLARED = [Route(one, nothing, methods=[method]) for method, path, _, _ in ROUTES for one in paths_served(path)]
EVERYTHING_ELSE = [Route("/api/v1/workloads/{rest:path}", nothing), Route("/runai/{rest:path}", nothing)]
ODD_PATHS = (
    "/",
    "",
    "/api",
    "/api/v1",
    "/api/v1/",
    "/runai",
    "/runai/",
    "/runai/x",
    "/runai/api/v1/none",
    "/runaix",
    "//",
)


@pytest.mark.parametrize("root", ["", "/below"])
def test_an_index_finds_what_the_list_finds(root: str) -> None:
    routes = [*DECLARED, *EVERYTHING_ELSE]
    index, router = RouteIndex(routes), Router(routes)
    paths = (
        {r.path for r in routes} | {f"{r.path}/more" for r in routes} | {f"{r.path}/" for r in routes} | set(ODD_PATHS)
    )
    for path, method in itertools.product(sorted(paths), ("GET", "POST", "DELETE", "BREW")):
        scope = {"type": "http", "method": method, "path": root + path, "root_path": root}
        found = [route.matches(scope) for route in router.routes]
        wanted = next((one for one in found if one[0] is Match.FULL), None)
        wanted = wanted or next((one for one in found if one[0] is Match.PARTIAL), (Match.NONE, {}))
        match, child = index.matches(scope)
        assert (match, child.get("path_params")) == (wanted[0], wanted[1].get("path_params")), path
        assert match is Match.NONE or child["rowlock.route"].path_regex.match(path)
