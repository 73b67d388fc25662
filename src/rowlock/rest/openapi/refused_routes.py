"""Routes of Run:ai's API that are not served; the answer gives the reason and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from starlette.routing import Match, Route

PREFIXES = ("/api/v2/workloads", "/v1/k8s")
"""Path prefixes below which nothing is served."""


class RefusedRoute(NamedTuple):
    """`methods` are separated by blanks; "" means all methods, and paths below `path` too."""

    methods: str
    path: str
    reason: str


REFUSED_ROUTES: tuple[RefusedRoute, ...] = (
    RefusedRoute("POST", "/api/v1/clusters", "a server has one cluster, which is there: GET /api/v1/clusters shows it"),
    RefusedRoute(
        "PUT DELETE",
        "/api/v1/clusters/{id}",
        "the cluster's name and life are the server's: `rowlock up` and `rowlock down`",
    ),
    RefusedRoute(
        "", "/api/v1/asset/registries", "registries are not kept as assets: name them in the image, as HOST/NAME:TAG"
    ),
    RefusedRoute(
        "", "/v1/k8s", "these paths are Run:ai's old ones: the same is served below /api/v1 (GET /api/v1/openapi.json)"
    ),
)


def refusal_of(method: str, path: str) -> str:
    """Why a route of Run:ai's is not served; "" for a served route, and for one that Run:ai does not have."""
    for route in REFUSED_ROUTES:
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route.path))
        below = "" if route.methods else "(/.*)?"
        if method in (route.methods.split() or [method]) and re.fullmatch(pattern + below, path):
            return route.reason
    return ""


def methods_of_ids(routes: Sequence[Route]) -> dict[str, list[str]]:
    """Path without parameters → methods that it does not serve but another route would, taking its last word for an id (no workload
    has the id `distributed`)."""
    own: dict[str, set[str]] = {}
    for route in routes:
        own.setdefault(route.path, set()).update(route.methods or ())
    mistaken: dict[str, list[str]] = {}
    for path in (path for path in own if "{" not in path):
        scope = {"type": "http", "path": path, "method": "GET"}
        taken = {m for route in routes if route.matches(scope)[0] is not Match.NONE for m in route.methods or ()}
        if unknown := taken - own[path]:
            mistaken[path] = sorted(unknown)
    return mistaken
