"""What a request carries: JSON, YAML or Kubernetes' protobuf as plain values; and which fields came twice."""

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
    """The body as JSON or YAML, by its type. Raises BadRequest, UnsupportedMediaType."""
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
"""Bytes from which YAML is read beside the event loop: it takes two milliseconds a KiB."""
LARGE_JSON = 64 * 1024
"""Bytes from which JSON is, whose odd forms (fields that come twice, thousands of objects) take 0.5 ms a KiB."""


class _ReadBody(bytes):
    """A JSON body that has been read: its value and its duplicate fields, or why it cannot be."""

    outcome: tuple[Any, list[str]] | BadRequest

    @classmethod
    def of(cls, body: bytes, outcome: tuple[Any, list[str]] | BadRequest) -> _ReadBody:
        read = cls(body)
        read.outcome = outcome
        return read


async def convert_large_body(call: Call) -> None:
    """Read a large body in a thread, once it is known that its sender may write at all; `decode_body` and the others here
    have it then at once. YAML becomes JSON. Raises BadRequest for YAML that is none."""
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
    except BadRequest as error:  # said where the body is looked at, in the words of who looks
        return _ReadBody.of(body, error)


def _is_json_object(body: bytes) -> bool:
    return body.lstrip()[:1] == b"{"


def decode_typed(value: Any, type_name: str) -> dict[str, Any]:
    """A body that is no object of the store (a Scale, a review), as its type has it. Raises BadRequest."""
    version, kind = type_name.split(".")[-2:]
    try:
        return decode(type_name, value, Walk(fill_defaults=False))
    except BadRequest as error:
        text = f'{kind} in version "{version}" cannot be handled as a {kind}: {error.message}'
        raise BadRequest(text) from None


def _is_custom_path(path: str) -> bool:
    """Is this about a kind that a real cluster gets by a CRD?"""
    group = path.split("/")[2:3] if path.startswith("/apis/") else [""]
    return "." in group[0] and not group[0].endswith(".k8s.io")


class JsonParseError(BadRequest):
    """A body that cannot be read; `why` says where."""

    def __init__(self, why: str) -> None:
        super().__init__(f"couldn't get version/kind; json parse error: {why}")
        self.why = why


def _too_deep_error() -> BadRequest:
    return BadRequest("the body is nested too deeply")


def json_of(body: bytes) -> Any:
    """JSON; of a field that comes twice the last. Raises BadRequest."""
    return decode_strict_json(body)[0]


def patch_of(body: bytes, prefix: str = "error decoding patch: ") -> Any:
    """A JSON patch or merge patch. Raises BadRequest, in words that begin with what the server was doing."""
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
        # What is no UTF-8, and half a pair of surrogates, is read as Go reads it: as U+FFFD.
        pairs = _DECODER.decode(body.decode("utf-8", "replace"))
        return _merge_pairs(pairs, walk), walk.duplicate_fields
    except RecursionError:
        raise _too_deep_error() from None
    except ValueError as error:
        raise JsonParseError(json_errors.json_error(body) or str(error)) from None


def _decode_unambiguous(body: bytes) -> Any:
    """The value of a body that says nothing twice and nothing in a roundabout way, as most do, in a third of the time: what
    was read, written again, is what came in. None: it takes a closer look."""
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        return None
    try:
        value = msgspec.json.decode(body)
        same = body.translate(None, _WHITESPACE) == msgspec.json.encode(value).translate(None, _WHITESPACE)
    except (
        msgspec.MsgspecError,
        ValueError,
        OverflowError,
    ):  # no JSON, no UTF-8, half a character, a number like no other
        return None
    return value if same else None


_WHITESPACE = b" \t\r\n"
"""In both texts alike it may go from inside strings, too: it changes nothing about how many there are."""


class _PairList(list[tuple[str, Any]]):
    """An object as its pairs."""


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"cannot unmarshal number {text[:40]} into a float64")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_PairList, parse_constant=json_errors.reject_constant, parse_float=_parse_finite
)
"""Made once: it takes as long to make one as to read a small body."""


def _merge_pairs(value: Any, walk: Walk) -> Any:
    """The value with dicts in place of pairs: of fields that come twice the last, whose paths are the `walk`'s duplicates; and with
    real characters. Raises BadRequest."""
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
    """A body of YAML, which may be JSON. Raises BadRequest."""
    if _is_json_object(body):
        return json_of(body)
    try:
        return read_yaml(body)
    except NestedTooDeeply:
        raise _too_deep_error() from None
    except UnreadableYaml as error:
        raise BadRequest(f"error converting YAML to JSON: {error}") from None
