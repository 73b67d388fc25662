"""The OpenAPI 3.1 document: paths and rights from the table of routes, the rest from `operations.py` and the schemas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rowlock import __version__
from rowlock.rest.call import Endpoint
from rowlock.rest.openapi.answers import ANSWERS
from rowlock.rest.openapi.operations import OPERATIONS, Operation
from rowlock.rest.openapi.requests import REQUESTS
from rowlock.rest.openapi.vocabulary import Schema, ref
from rowlock.rest.rights import Right

SCHEMAS: dict[str, Schema] = {**ANSWERS, **REQUESTS}
_BOOLEANS = frozenset({"dryRun", "follow", "timestamps", "previous", "deleted", "validateOnly", "now"})
_WHOLE_NUMBERS = frozenset({"offset", "limit", "tail", "tailLines", "limitBytes", "seconds"})


def openapi_document(routes: Iterable[tuple[str, str, Right, Endpoint]], door: str) -> dict[str, Any]:
    """The document of these routes. `door`: the path prefix below which all of them are served."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path, right, serve in routes:
        operation = OPERATIONS[method, path]
        paths.setdefault(path, {})[method.lower()] = _describe_operation(path, right, serve, operation)
    for path in ("/api/v1/token",):
        paths[path] = {
            "post": {
                **_describe_body("TokenRequest"),
                "security": [],
                "responses": _describe_answers(Operation("Token")),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "rowlock: Run:ai's REST API", "version": __version__},
        "servers": [{"url": door}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_operation(path: str, right: Right, serve: Endpoint, operation: Operation) -> dict[str, Any]:
    in_path = [
        {"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in re.findall(r"{(\w+)}", path)
    ]
    in_query = [{"name": name, "in": "query", "schema": _parameter_schema(name)} for name in operation.query]
    described: dict[str, Any] = {"responses": _describe_answers(operation)}
    if summary := (serve.__doc__ or "").partition(": ")[2].replace("\n", " "):
        described["summary"] = re.sub(r"\s+", " ", re.split(r"[.;:] ", summary)[0]).rstrip(".")
    if in_path or in_query:
        described["parameters"] = [*in_path, *in_query]
    if right.verb:
        kind = right.kind.plural if right.kind is not None else "the job's kind"
        described["x-kubernetes-right"] = f"{right.verb} {kind}" + (
            f"/{right.subresource}" if right.subresource else ""
        )
    return described | (_describe_body(operation.body) if operation.body else {})


def _parameter_schema(name: str) -> Schema:
    if name in _BOOLEANS:
        return {"type": "boolean"}
    return {"type": "integer", "minimum": 0} if name in _WHOLE_NUMBERS else {"type": "string"}


def _describe_body(name: str) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": ref(name)}}}}


def _describe_answers(operation: Operation) -> dict[str, Any]:
    schema: Schema = {"type": "string"} if operation.answer in ("text", "") else ref(operation.answer)
    media = "text/plain" if operation.answer == "text" else "application/json"
    error = {"description": "refused, and why", "content": {"application/json": {"schema": ref("Error")}}}
    answer = {"description": "done"} | ({"content": {media: {"schema": schema}}} if operation.answer else {})
    return {str(operation.code): answer, "default": error}
