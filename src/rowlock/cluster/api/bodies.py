"""What a request carries: JSON, YAML or Kubernetes' protobuf as plain values; and which fields came twice."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from rowlock.cluster.api import golang, protobuf
from rowlock.cluster.api.requests import Call
from rowlock.errors import BadRequest, UnsupportedMediaType

PROTOBUF = "application/vnd.kubernetes.protobuf"


def document(call: Call) -> Any:
    """The body as JSON or YAML, by its type. Raises BadRequest, UnsupportedMediaType."""
    media = call.header(b"content-type").partition(";")[0].strip().lower()
    if media == PROTOBUF:
        return protobuf.decode(call.body)
    if media in ("application/yaml", "application/apply-patch+yaml"):
        return yaml_of(call.body)
    if media and media != "application/json":
        more = "" if _custom(call.path) else f", {PROTOBUF}"
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include:"
            f" application/json, application/yaml{more}"
        )
    return json_of(call.body)


def part(body: dict[str, Any], name: str) -> dict[str, Any]:
    """An object within the body, {} where there is none. Raises BadRequest."""
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise BadRequest(f"{name} is an object")
    return found


def _custom(path: str) -> bool:
    """Is this about a kind that a real cluster gets by a CRD?"""
    group = path.split("/")[2:3] if path.startswith("/apis/") else [""]
    return "." in group[0] and not group[0].endswith(".k8s.io")


class NoJson(BadRequest):
    """A body that cannot be read; `why` in Go's words."""

    def __init__(self, why: str) -> None:
        super().__init__(f"couldn't get version/kind; json parse error: {why}")
        self.why = why


def json_of(body: bytes) -> Any:
    """JSON. Raises BadRequest."""
    return _read(body, _decoder(None))


def _read(body: bytes, decoder: json.JSONDecoder) -> Any:
    try:
        # What is no UTF-8, and half a pair of surrogates, is read as Go reads it: as U+FFFD.
        text = body.decode("utf-8", "replace")
        value = decoder.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise NoJson(golang.json_error(body) or str(error)) from None
    if "\\u" in text or text.count("{") + text.count("[") > DEPTH:
        return plain(value)
    return value


DEPTH = 200
"""How deeply a body may be nested; nothing that we serve comes near."""


def _too_deep() -> BadRequest:
    return BadRequest("the body is nested too deeply")


def patch_of(body: bytes, said: str = "error decoding patch: ") -> Any:
    """A JSON patch or merge patch. Raises BadRequest, in words that begin with what the server was doing."""
    try:
        value = msgspec.json.decode(body.decode("utf-8", "replace"))
    except RecursionError:
        raise _too_deep() from None
    except msgspec.MsgspecError as error:
        raise BadRequest(said + (golang.json_error(body) or str(error))) from None
    return plain(value) if b"\\u" in body or body.count(b"{") + body.count(b"[") > DEPTH else value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"cannot unmarshal number {text[:40]} into a float64")
    return number


def plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON can hold it: real characters, finite numbers, text for keys. Raises BadRequest."""
    if depth > DEPTH:
        raise _too_deep()
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {plain(_key(k), depth + 1): plain(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v, depth + 1) for v in value]
    if isinstance(value, bytes):  # YAML's !!binary
        return base64.b64encode(value).decode()
    if (
        value is not None
        and not isinstance(value, (bool, int))
        and not (isinstance(value, float) and math.isfinite(value))
    ):
        raise BadRequest(f"error converting YAML to JSON: there is no JSON for {str(value)[:40]}")
    return value


def _key(key: Any) -> str:
    """YAML's keys may be numbers and booleans; JSON's are text."""
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    if isinstance(key, (int, float)):
        return str(key)
    raise BadRequest(f"error converting YAML to JSON: a key must be text, not {str(key)[:40]}")


def yaml_of(body: bytes) -> Any:
    import yaml

    try:
        return json_of(body) if body.lstrip()[:1] == b"{" else plain(yaml.load(body, _loader(yaml)))
    except (yaml.YAMLError, ValueError) as error:  # a number that is none is a ValueError
        raise BadRequest(f"error converting YAML to JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None


def _loader(yaml: Any) -> Any:
    """YAML as JSON has it: times stay texts; aliases are refused, for they can grow without bound."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML is imported when first needed
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not accepted")
            return super().compose_node(parent, index)

    Loader.yaml_implicit_resolvers = {
        key: [r for r in found if r[0] != "tag:yaml.org,2002:timestamp"]
        for key, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _unambiguous(body: bytes) -> Any:
    """The value of a body that says nothing twice and nothing in a roundabout way, as most do, in a third of the time: what
    was read, written again, is what came in. None: it takes a closer look."""
    if body.count(b"{") + body.count(b"[") > DEPTH:
        return None
    try:
        value = msgspec.json.decode(body)
        same = body.translate(None, _SPACE) == msgspec.json.encode(value).translate(None, _SPACE)
    except (
        msgspec.MsgspecError,
        ValueError,
        OverflowError,
    ):  # no JSON, no UTF-8, half a character, a number like no other
        return None
    return value if same else None


_SPACE = b" \t\r\n"
"""In both texts alike it may go from inside strings, too: it changes nothing about how many there are."""


class _Pairs:
    """Finds keys that occur twice in one object: the last wins, and is reported."""

    def __init__(self) -> None:
        self.found = False

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            self.found = True
        return made


def strict_json(body: bytes) -> tuple[Any, list[str]]:
    """The body and the paths of its duplicate fields."""
    quick = _unambiguous(body)
    if quick is not None:
        return quick, []
    _PAIRS.found = False
    value = _read(body, _decoder(_PAIRS))
    return value, duplicates(body) if _PAIRS.found else []


_PAIRS = _Pairs()
"""One for all: a body is read in one go."""


@cache
def _decoder(pairs: _Pairs | None) -> json.JSONDecoder:
    """Made once: it takes as long to make one as to read a small body."""
    return json.JSONDecoder(object_pairs_hook=pairs, parse_constant=_no_constant, parse_float=_finite)


class _Listed(list[tuple[str, Any]]):
    """An object as its pairs."""


def duplicates(body: bytes) -> list[str]:
    """The slow way, once a duplicate is known: where."""
    return list(_duplicates(json.loads(body.decode("utf-8", "replace"), object_pairs_hook=_Listed), ""))


def _duplicates(value: Any, path: str) -> Iterable[str]:
    if isinstance(value, _Listed):
        seen: set[str] = set()
        for key, element in value:
            where = f"{path}.{key}" if path else key
            if key in seen:
                yield where
            seen.add(key)
            yield from _duplicates(element, where)
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from _duplicates(element, f"{path}[{index}]")
