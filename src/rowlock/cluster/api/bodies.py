"""What a request carries: JSON, YAML or Kubernetes' protobuf as plain values; and which fields came twice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rowlock.cluster.api import protobuf
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
    if media and not media.endswith("json") and media != "*/*":
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include:"
            " application/json, application/yaml"
        )
    return json_of(call.body)


def json_of(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_constant)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except ValueError as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def yaml_of(body: bytes) -> Any:
    import yaml

    try:
        return json_of(body) if body.lstrip()[:1] == b"{" else yaml.load(body, _loader(yaml))
    except yaml.YAMLError as error:
        raise BadRequest(f"error converting YAML to JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


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
    pairs = _Pairs()
    try:
        value = json.loads(body, object_pairs_hook=pairs, parse_constant=_no_constant)
        return value, duplicates(body) if pairs.found else []
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except ValueError as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from None


class _Listed(list[tuple[str, Any]]):
    """An object as its pairs."""


def duplicates(body: bytes) -> list[str]:
    """The slow way, once a duplicate is known: where."""
    return list(_duplicates(json.loads(body, object_pairs_hook=_Listed), ""))


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
