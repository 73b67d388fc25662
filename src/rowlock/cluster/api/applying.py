"""What server-side apply does to an object: a configuration is merged into it, and what it no longer names goes.

Null is a value here: it takes the place of a text or a number, and leaves a map or a list as it is. What has become
empty is null; decoding drops that. `managedfields.py` says who owns what; this module knows values only. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from rowlock.cluster.api import fieldsets, types
from rowlock.cluster.api.fieldsets import Fields, Path

_MISSING: Any = object()


def merged(live: Any, config: Any, node: types.Schema) -> Any:
    """The live value with everything that the configuration says."""
    if live is _MISSING or types.atomic(node) or not (live or config):
        return config
    if isinstance(live, dict | None) and isinstance(config, dict | None) and (live or config):
        return _merged_maps(live or {}, config or {}, node) if _holds(node, dict) else config
    if isinstance(live, list | None) and isinstance(config, list | None) and _holds(node, list):
        return _merged_lists(live or [], config or [], node)
    return config


def _holds(node: types.Schema, sort: type) -> bool:
    """Whether values of this type are maps, or lists, that are merged part by part."""
    found = node.get("type")
    if sort is list:
        return bool(found == "array")
    return found in (None, "object") and not node.get("x-kubernetes-int-or-string")


def _merged_maps(live: dict[str, Any], config: dict[str, Any], node: types.Schema) -> dict[str, Any]:
    out = dict(live)
    for key, value in config.items():
        out[key] = merged(live.get(key, _MISSING), value, types.field(node, key) or types.ANYTHING)
    return out


def _merged_lists(live: list[Any], config: list[Any], node: types.Schema) -> list[Any]:
    """Elements that both have come in the configuration's order; others stay behind what they stood behind."""
    child = types.items(node)
    left, right = (deque((fieldsets.element_of(e, node), e) for e in side) for side in (live, config))
    before, wanted = dict(left), dict(right)
    shared = deque(step for step in wanted if step in before)
    done: set[str] = set()
    out: list[Any] = []
    while left or right:
        step = left[0][0] if left else ""
        if left and step not in wanted:
            out.append(left.popleft()[1])
            continue
        if not right or (left and step != right[0][0] and shared and shared[0] != step):
            left.popleft()  # it has been merged, or will be where the configuration has it
            continue
        if left and (step == right[0][0] or step in done):
            left.popleft()
        step, element = right.popleft()
        done.add(step)
        out.append(merged(before.get(step, _MISSING), element, child))
        if shared and shared[0] == step:
            shared.popleft()
    return out


def pruned(value: dict[str, Any], node: types.Schema, prior: Fields, owned: Fields) -> dict[str, Any]:
    """The object without the fields of `prior` that nobody owns any more. `owned` are everybody's, `prior` a manager's
    until now. A field in which something is left stays."""
    mine = fieldsets.with_named(prior, node)
    have = _fields(value, node)
    left = _fields(_without(value, mine, node), node)
    kept = _fields(_without(value, have - left - fieldsets.with_named(owned, node), node), node)
    return _without(value, (have - kept) & mine, node) or {}


def _fields(value: Any, node: types.Schema) -> Fields:
    return fieldsets.with_named(set(fieldsets.paths(fieldsets.configured(value or {}, node))), node)


def _without(value: Any, gone: Fields, node: types.Schema) -> Any:
    above = {path[:end] for path in gone for end in range(1, len(path))}
    return _shorter(value, gone, above, node, ()) if gone else value


def _shorter(value: Any, gone: Fields, above: Fields, node: types.Schema, at: Path) -> Any:
    """The value without the fields `gone`, `above` which there may be others; None when nothing is left."""
    if not value or types.atomic(node) or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        child, rest = types.items(node), []
        for element in value:
            step = (*at, fieldsets.element_of(element, node))
            if step not in gone:
                rest.append(_shorter(element, gone, above, child, step) if step in above else element)
        return rest or None
    out = {}
    for key, element in value.items():
        step = (*at, f"f:{key}")
        if step not in gone:
            child = types.field(node, key) or types.ANYTHING
            out[key] = _shorter(element, gone, above, child, step) if step in above else element
    return out or None
