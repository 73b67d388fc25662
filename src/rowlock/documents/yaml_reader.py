"""Reads untrusted YAML as Kubernetes does, into plain JSON values.

Times stay strings, as in Go. So do sexagesimal numbers, whose cost grows with the square of their length. Aliases, with which a few
lines become gigabytes, and deep nesting, on which libyaml recurses in C, are refused.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from typing import Any

MAX_DEPTH = 200
"""The deepest nesting of a document; no object of the API is nearly as deep."""


class UnreadableYaml(ValueError):
    """The text is not YAML, or has values that JSON cannot represent; the message says why."""


class NestedTooDeeply(UnreadableYaml):
    """More than `MAX_DEPTH` levels."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {MAX_DEPTH} levels deep")


def read_yaml(text: bytes) -> Any:
    """The single document of a text as JSON values. It takes 2 ms per KiB if PyYAML was built without libyaml: read more
    than some KiB in another thread. Raises UnreadableYaml."""
    import yaml  # late: most bodies are JSON

    try:
        loader = _yaml_loader()
        _check_events(yaml.parse(text, Loader=loader))
        return _to_json(yaml.load(text, loader), 0)
    except UnreadableYaml:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # invalid numbers raise ValueError
        raise UnreadableYaml(str(error)) from None
    except RecursionError:
        raise NestedTooDeeply from None


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _check_events(events: Iterable[Any]) -> None:
    """Refuse aliases and deep nesting. The event parser does not recurse, so this pass is safe for any text."""
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise UnreadableYaml("aliases are not accepted: write the values out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise NestedTooDeeply
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _to_json(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise NestedTooDeeply
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {replace_surrogates(_json_key(key)): _to_json(element, depth + 1) for key, element in value.items()}
    if isinstance(value, list):
        return [_to_json(element, depth + 1) for element in value]
    if isinstance(value, bytes):  # YAML's !!binary
        return b64encode(value).decode()
    if not isinstance(value, bool | int | None) and not (isinstance(value, float) and math.isfinite(value)):
        raise UnreadableYaml(f"there is no JSON for {str(value)[:40]}")
    return value


def _json_key(key: Any) -> str:
    """A mapping key as text: YAML keys may also be numbers, booleans and null. Raises UnreadableYaml for others."""
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    if isinstance(key, (int, float)):
        return str(key)
    raise UnreadableYaml(f"a key must be text, not {str(key)[:40]}")


@cache
def _yaml_loader() -> Any:
    """The loader class: libyaml's if PyYAML was built with it, which is ten times as fast."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("Loader", (base,), {})
    loader.yaml_implicit_resolvers = {
        first: [
            (tag, _WITHOUT_BASE_60.get(tag, pattern))
            for tag, pattern in resolvers
            if tag != "tag:yaml.org,2002:timestamp"
        ]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    for tag, construct in (("int", base.construct_yaml_int), ("float", base.construct_yaml_float)):
        loader.add_constructor(f"tag:yaml.org,2002:{tag}", _refuse_base_60(construct))
    return loader


def _refuse_base_60(construct: Any) -> Any:
    """A constructor that refuses sexagesimal numbers with an explicit tag (`!!int 1:59:59`), which bypass the resolvers."""

    def construct_number(loader: Any, node: Any) -> Any:
        if ":" in str(getattr(node, "value", "")):
            raise UnreadableYaml("numbers to the base 60 are not accepted: put them in quotes")
        return construct(loader, node)

    return construct_number


_WITHOUT_BASE_60 = {
    "tag:yaml.org,2002:int": re.compile(r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|\.(?:inf|Inf|INF))$"
        r"|\.(?:nan|NaN|NAN)$"
    ),
}
"""The number patterns of YAML 1.1, without sexagesimal ones (`1:59:59`)."""
