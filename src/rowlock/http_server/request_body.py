"""Reads request bodies up to a size limit; a larger body is refused before all of it is in memory."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from rowlock.documents.yaml_reader import MAX_DEPTH
from rowlock.errors import BadRequest, TooLarge


async def read_body(request: Request, limit: int, refusal: str = "") -> bytes:
    """The raw body. Raises TooLarge beyond `limit` bytes, with the message `refusal` if given."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > limit:
            raise TooLarge(refusal or f"the body has more than {limit} bytes, which is the limit")
    return bytes(raw)


def decode_json(raw: bytes) -> Any:
    """Decode JSON. Raises BadRequest if it is invalid, or nested more deeply than `MAX_DEPTH`, as in the Kubernetes API."""
    try:
        value = msgspec.json.decode(raw)
    except ValueError as error:  # msgspec.DecodeError, or a text that is no UTF-8
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep_error() from None
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _is_too_deep(value):
        raise _too_deep_error()
    return value


def _too_deep_error() -> BadRequest:
    return BadRequest(f"the body is nested more than {MAX_DEPTH} levels deep")


def _is_too_deep(value: Any) -> bool:
    """Checks level by level, without recursion, since the client controls the depth."""
    level = [value]
    for _ in range(MAX_DEPTH):
        collections = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [one for collection in collections for one in collection]
    return any(isinstance(one, dict | list) for one in level)
