"""The value operations of server-side apply: merge a configuration into an object, and remove fields it no longer names.

Null is a value here: it replaces a string or a number, but leaves a map or a list unchanged. A value that has become
empty is null; decoding drops it. Ownership is in `managed_fields.py`; this module handles values only. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from rowlock.apiserver.apply import field_sets
from rowlock.apiserver.apply.field_sets import Fields, Path
from rowlock.apiserver.schema import types

_MISSING: Any = object()


def merge_config(live: Any, config: Any, node: types.Schema) -> Any:
    """The live value with the configuration merged into it."""
    if live is _MISSING or types.is_atomic(node) or not (live or config):
        return config
    if isinstance(live, dict | None) and isinstance(config, dict | None) and (live or config):
        return _merge_maps(live or {}, config or {}, node) if _is_granular(node, dict) else config
    if isinstance(live, list | None) and isinstance(config, list | None) and _is_granular(node, list):
        return _merge_lists(live or [], config or [], node)
    return config


def _is_granular(node: types.Schema, sort: type) -> bool:
    """Whether values of this type are maps (`sort` dict) or lists (`sort` list) that are merged element by element."""
    schema_type = node.get("type")
    if sort is list:
        return bool(schema_type == "array")
    return schema_type in (None, "object") and not node.get("x-kubernetes-int-or-string")


def _merge_maps(live: dict[str, Any], config: dict[str, Any], node: types.Schema) -> dict[str, Any]:
    out = dict(live)
    for key, value in config.items():
        out[key] = merge_config(live.get(key, _MISSING), value, types.field_schema(node, key) or types.ANYTHING)
    return out


def _merge_lists(live: list[Any], config: list[Any], node: types.Schema) -> list[Any]:
    """Merge two lists: shared elements take the configuration's order; others stay after the element that they followed."""
    child = types.item_schema(node)
    live_queue, config_queue = (deque((field_sets.path_element(e, node), e) for e in side) for side in (live, config))
    live_elements, config_elements = dict(live_queue), dict(config_queue)
    shared = deque(step for step in config_elements if step in live_elements)
    done: set[str] = set()
    out: list[Any] = []
    while live_queue or config_queue:
        step = live_queue[0][0] if live_queue else ""
        if live_queue and step not in config_elements:
            out.append(live_queue.popleft()[1])
            continue
        if not config_queue or (live_queue and step != config_queue[0][0] and shared and shared[0] != step):
            live_queue.popleft()  # merged already, or later at its place in the configuration
            continue
        if live_queue and (step == config_queue[0][0] or step in done):
            live_queue.popleft()
        step, element = config_queue.popleft()
        done.add(step)
        out.append(merge_config(live_elements.get(step, _MISSING), element, child))
        if shared and shared[0] == step:
            shared.popleft()
    return out


def prune_unowned(value: dict[str, Any], node: types.Schema, prior: Fields, owned: Fields) -> dict[str, Any]:
    """The object without the fields of `prior` (a manager's fields until now) that are not in `owned` (the fields of all
    managers). A field that still has subfields is kept."""
    prior_fields = field_sets.ensure_named_members(prior, node)
    all_fields = _fields(value, node)
    remaining = _fields(_remove_fields(value, prior_fields, node), node)
    kept_fields = _fields(
        _remove_fields(value, all_fields - remaining - field_sets.ensure_named_members(owned, node), node), node
    )
    return _remove_fields(value, (all_fields - kept_fields) & prior_fields, node) or {}


def _fields(value: Any, node: types.Schema) -> Fields:
    return field_sets.ensure_named_members(set(field_sets.paths(field_sets.config_fields(value or {}, node))), node)


def _remove_fields(value: Any, removed: Fields, node: types.Schema) -> Any:
    ancestors = {path[:end] for path in removed for end in range(1, len(path))}
    return _remove_below(value, removed, ancestors, node, ()) if removed else value


def _remove_below(value: Any, removed: Fields, ancestors: Fields, node: types.Schema, at: Path) -> Any:
    """The value at `at` without the fields `removed`; `ancestors`: the paths above them. None when nothing is left."""
    if not value or types.is_atomic(node) or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        child, rest = types.item_schema(node), []
        for element in value:
            step = (*at, field_sets.path_element(element, node))
            if step not in removed:
                rest.append(_remove_below(element, removed, ancestors, child, step) if step in ancestors else element)
        return rest or None
    out = {}
    for key, element in value.items():
        step = (*at, f"f:{key}")
        if step not in removed:
            child = types.field_schema(node, key) or types.ANYTHING
            out[key] = _remove_below(element, removed, ancestors, child, step) if step in ancestors else element
    return out or None
