"""Parses request bodies: JSON, YAML or Kubernetes' protobuf into plain values; and detects duplicate fields."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import msgspec

from rowlock.apiserver.http.requests import Call
from rowlock.apiserver.schema import json_errors, protobuf
from rowlock.apiserver.schema.decoding import Walk, decode
from rowlock.documents.yaml_reader import MAX_DEPTH, NestedTooDeeply, UnreadableYaml, read_yaml, replace_surrogates
from rowlock.errors import BadRequest, UnsupportedMediaType

PROTOBUF = "application/vnd.kubernetes.protobuf"


def decode_body(call: Call) -> Any:
    """The value of the body, parsed by its content type. Raises BadRequest, UnsupportedMediaType."""
    media = call.header(b"content-type").partition(";")[0].strip().lower()
    if media == PROTOBUF:
        return protobuf.decode(call.body)
    if media in ("application/yaml", "application/apply-patch+yaml"):
        return yaml_of(call.body)
    if media and media != "application/json":
        more = "" if _is_custom_path(call.path) else f", {PROTOBUF}"
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include:"
            f" application/json, application/yaml{more}"
        )
    return json_of(call.body)


LARGE_YAML = 32 * 1024
"""Bytes above which YAML is parsed in a thread: it takes 2 ms per KiB."""
LARGE_JSON = 64 * 1024
"""Bytes above which JSON is parsed in a thread: unusual JSON (duplicate fields, thousands of objects) takes 0.5 ms per KiB."""


class _ReadBody(bytes):
    """A JSON body that has been parsed: `outcome` is its value and duplicate fields, or the error."""

    outcome: tuple[Any, list[str]] | BadRequest

    @classmethod
    def of(cls, body: bytes, outcome: tuple[Any, list[str]] | BadRequest) -> _ReadBody:
        read = cls(body)
        read.outcome = outcome
        return read


async def convert_large_body(call: Call) -> None:
    """Parse a large body in a thread and cache the result for `decode_body` and the other functions here. Call it only after
    authorization. YAML becomes JSON. Raises BadRequest for invalid YAML."""
    media = call.header(b"content-type").lower()
    if "yaml" in media and len(call.body) > LARGE_YAML and not _is_json_object(call.body):
        value = await asyncio.to_thread(yaml_of, call.body)
        if isinstance(value, dict):
            call.body = _ReadBody.of(msgspec.json.encode(value), (value, []))
    elif len(call.body) > LARGE_JSON and not media.startswith(PROTOBUF):
        call.body = await asyncio.to_thread(_read_json, call.body)


def _read_json(body: bytes) -> _ReadBody:
    try:
        return _ReadBody.of(body, decode_strict_json(body))
    except BadRequest as error:  # raised when the body is used, so that the caller can word it
        return _ReadBody.of(body, error)


def _is_json_object(body: bytes) -> bool:
    return body.lstrip()[:1] == b"{"


def decode_typed(value: Any, type_name: str) -> dict[str, Any]:
    """Decode a body that is not stored (a Scale, a review) by its type. Raises BadRequest."""
    version, kind = type_name.split(".")[-2:]
    try:
        return decode(type_name, value, Walk(fill_defaults=False))
    except BadRequest as error:
        text = f'{kind} in version "{version}" cannot be handled as a {kind}: {error.message}'
        raise BadRequest(text) from None


def _is_custom_path(path: str) -> bool:
    """Whether the path is about a kind that a real cluster has by a CRD."""
    group = path.split("/")[2:3] if path.startswith("/apis/") else [""]
    return "." in group[0] and not group[0].endswith(".k8s.io")


class JsonParseError(BadRequest):
    """The body is not valid JSON; `why` says where."""

    def __init__(self, why: str) -> None:
        super().__init__(f"couldn't get version/kind; json parse error: {why}")
        self.why = why


def _too_deep_error() -> BadRequest:
    return BadRequest("the body is nested too deeply")


def json_of(body: bytes) -> Any:
    """Parse JSON; the last of duplicate fields counts. Raises BadRequest."""
    return decode_strict_json(body)[0]


def patch_of(body: bytes, prefix: str = "error decoding patch: ") -> Any:
    """Parse a JSON patch or merge patch. Raises BadRequest, with `prefix` before the message."""
    try:
        return json_of(body)
    except JsonParseError as error:
        raise BadRequest(prefix + error.why) from None


def decode_strict_json(body: bytes) -> tuple[Any, list[str]]:
    """The body and the paths of its duplicate fields. Raises BadRequest."""
    if isinstance(body, _ReadBody):
        if isinstance(body.outcome, BadRequest):
            raise body.outcome
        return body.outcome
    value = _decode_unambiguous(body)
    if value is not None:
        return value, []
    walk = Walk()
    try:
        # Invalid UTF-8 and lone surrogates become U+FFFD, as in Go.
        pairs = _DECODER.decode(body.decode("utf-8", "replace"))
        return _merge_pairs(pairs, walk), walk.duplicate_fields
    except RecursionError:
        raise _too_deep_error() from None
    except ValueError as error:
        raise JsonParseError(json_errors.json_error(body) or str(error)) from None


def _decode_unambiguous(body: bytes) -> Any:
    """The value of a body without duplicate fields or unusual notation, as most are, in a third of the time: if it encodes to
    the same bytes again, nothing was lost. None: it needs the slow parser."""
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        return None
    try:
        value = msgspec.json.decode(body)
        same = body.translate(None, _WHITESPACE) == msgspec.json.encode(value).translate(None, _WHITESPACE)
    except (
        msgspec.MsgspecError,
        ValueError,
        OverflowError,
    ):  # invalid JSON or UTF-8, a lone surrogate, a number out of range
        return None
    return value if same else None


_WHITESPACE = b" \t\r\n"
"""Whitespace is ignored when the two texts are compared, also inside strings, where it is removed from both alike."""


class _PairList(list[tuple[str, Any]]):
    """A JSON object as a list of its pairs."""


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"cannot unmarshal number {text[:40]} into a float64")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_PairList, parse_constant=json_errors.reject_constant, parse_float=_parse_finite
)
"""Created once, because creating it takes as long as parsing a small body."""


def _merge_pairs(value: Any, walk: Walk) -> Any:
    """The value with dicts in place of pairs, the last of duplicate fields counting, and lone surrogates replaced. Paths of duplicate
    fields are added to `walk`. Raises BadRequest for deep nesting."""
    if len(walk.path) > MAX_DEPTH:
        raise _too_deep_error()
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, _PairList):
        out: dict[str, Any] = {}
        for raw_key, element in value:
            key = replace_surrogates(raw_key)
            if key in out:
                walk.duplicate_fields.append(walk.field_path(key))
            walk.path.append(key)
            out[key] = _merge_pairs(element, walk)
            walk.path.pop()
        return out
    if isinstance(value, list):
        elements = []
        for index, element in enumerate(value):
            walk.path.append(index)
            elements.append(_merge_pairs(element, walk))
            walk.path.pop()
        return elements
    return value


def yaml_of(body: bytes) -> Any:
    """Parse YAML, which may be JSON. Raises BadRequest."""
    if _is_json_object(body):
        return json_of(body)
    try:
        return read_yaml(body)
    except NestedTooDeeply:
        raise _too_deep_error() from None
    except UnreadableYaml as error:
        raise BadRequest(f"error converting YAML to JSON: {error}") from None
