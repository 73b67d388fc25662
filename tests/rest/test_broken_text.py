"""Bytes that are no UTF-8 inside JSON are a mistake of the client: msgspec raises another error for them than for broken JSON."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from starlette.requests import Request

from rowlock.archive.log_intake import OWNER_FILE, find_log_files
from rowlock.browser.login_page import parse_texts, read_json
from rowlock.errors import BadRequest
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
