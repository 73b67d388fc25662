"""YAML as Kubernetes reads it, from people who may be hostile: plain JSON values, or why it cannot be read.

Times stay texts, as in Go. So do numbers to the base 60, whose cost grows with the square of their length. Aliases, of which a few
lines become gigabytes, and depth, on which libyaml recurses in C, are refused.
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
"""How deeply a document may be nested; nothing that we serve comes near."""


class UnreadableYaml(ValueError):
    """What is no YAML, or says what JSON cannot hold; the text says why."""


class NestedTooDeeply(UnreadableYaml):
    """More than `MAX_DEPTH` levels."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {MAX_DEPTH} levels deep")


def read_yaml(text: bytes) -> Any:
    """The one document of a text as JSON's values. It takes two milliseconds a KiB where PyYAML was built without libyaml: read more
    than some KiB beside the event loop. Raises UnreadableYaml."""
    import yaml  # late: most bodies are JSON

    try:
        loader = _yaml_loader()
        _check_events(yaml.parse(text, Loader=loader))
        return _to_json(yaml.load(text, loader), 0)
    except UnreadableYaml:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # a number that is none is a ValueError
        raise UnreadableYaml(str(error)) from None
    except RecursionError:
        raise NestedTooDeeply from None


def replace_surrogates(text: str) -> str:
    """The text with U+FFFD in place of half characters, which no UTF-8 can hold."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _check_events(events: Iterable[Any]) -> None:
    """Refuse aliases and depth. The parser works on a stack of its own, so this pass is safe for any text."""
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
    """YAML's keys may be numbers and booleans; JSON's are text."""
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    if isinstance(key, (int, float)):
        return str(key)
    raise UnreadableYaml(f"a key must be text, not {str(key)[:40]}")


@cache
def _yaml_loader() -> Any:
    """libyaml's parser where PyYAML was built with it: ten times as fast."""
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
    """A constructor for numbers with a tag of their own (`!!int 1:59:59`), which no resolver looks at."""

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
"""What YAML 1.1 takes for numbers, without `1:59:59`."""
