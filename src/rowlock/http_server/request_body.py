"""The body of a request, up to a size: whoever sends more is refused before it is held."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request

from rowlock.errors import BadRequest, TooLarge


async def read_body(request: Request, limit: int, refusal: str = "") -> bytes:
    """The raw body. Raises TooLarge beyond `limit` bytes, with `refusal` as its sentence where one is given."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > limit:
            raise TooLarge(refusal or f"the body has more than {limit} bytes, which is the limit")
    return bytes(raw)


def decode_json(raw: bytes) -> Any:
    """Raises BadRequest when it is no JSON."""
    try:
        return msgspec.json.decode(raw)
    except ValueError as error:  # msgspec.DecodeError, or a text that is no UTF-8
        raise BadRequest(f"the body is not JSON: {error}") from None
