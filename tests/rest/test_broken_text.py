"""Bytes that are no UTF-8 inside JSON are a mistake of the client: msgspec raises another error for them than for broken JSON."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from starlette.requests import Request
from tests.rest.conftest import World

from rowlock.archive.log_intake import OWNER_FILE, find_log_files
from rowlock.browser.login_page import parse_texts, read_json
from rowlock.errors import BadRequest
from rowlock.http_server.request_body import decode_json
from rowlock.rest.call import AppContext, RestCall

BODIES = (b'{"code": "\xed\xa0\x80"}', b'{"\xff": 1}', b"\xff", b'{"code": "\\ud800"}', b'"' + b"\xc3" * 1000 + b'"')


@pytest.mark.parametrize("body", BODIES)
def test_it_is_refused(body: bytes) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}, receive)
    with pytest.raises(BadRequest):
        asyncio.run(RestCall(cast(AppContext, None), request, "").json())
    with pytest.raises(BadRequest):
        parse_texts(asyncio.run(read_json(Request(request.scope, receive))), ("code",))


def test_an_owner_file_with_broken_text_names_nobody(tmp_path: Any) -> None:
    directory = tmp_path / "ns_pod_1-2"
    directory.mkdir()
    (directory / OWNER_FILE).write_bytes(b'{"uid": "\xff"}')
    (directory / "main.0.log").write_bytes(b"x\n")
    assert [one.owner for one in find_log_files(str(directory))] == [""]


@pytest.mark.parametrize("depth", [201, 900, 5000])
@pytest.mark.parametrize("path", ["token", "workloads/distributed", "org-unit/projects"])
def test_what_is_nested_too_deeply_is_refused(world: World, path: str, depth: int) -> None:
    answer = world.client.post(f"/api/v1/{path}", content="[" * depth + "]" * depth)
    assert (answer.status_code, answer.json()["message"]) == (400, "the body is nested more than 200 levels deep")


def test_two_hundred_levels_and_a_wide_body_are_read() -> None:
    assert decode_json(b"[" * 200 + b"]" * 200) and len(decode_json(b"[" + b"[]," * 300 + b"[]]")) == 301
