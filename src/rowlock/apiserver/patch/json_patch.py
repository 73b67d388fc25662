"""JSON patch (RFC 6902) on values that are never changed in place. Pure.

Failures answer as the real API server does: a patch that cannot be read is BadRequest, one that does not fit the
object is 422 without details.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowlock.apiserver.schema.json_errors import unmarshal_error
from rowlock.errors import BadRequest, Invalid

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
"""What the `copy` operations of one patch may add, as JSON: kube-apiserver's `JSONPatchMaxCopyBytes`."""
_MISSING: Any = object()


def _rejected_patch() -> Invalid:
    return Invalid("the server rejected our request due to an error in our request", details={})


def apply_json_patch(target: Any, patch: Any) -> Any:
    """The value after all operations, in order; all or nothing."""
    if patch is None:  # to Go, an empty list
        return target
    if not isinstance(patch, list):
        raise BadRequest(f"error decoding patch: {unmarshal_error(patch, 'a list of operations')}")
    for operation in patch:
        if not isinstance(operation, dict):
            raise BadRequest(f"error decoding patch: {unmarshal_error(operation, 'an operation')}")
        for field in ("op", "path", "from"):
            if not isinstance(operation.get(field), str | None):
                text = unmarshal_error(operation[field], f"the text that {field} is")
                raise BadRequest(f"error decoding patch: {text}")
    if len(patch) > MAX_OPERATIONS:
        raise BadRequest(
            f"the allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}: send several patches"
        )
    copied_bytes = 0
    for operation in patch:
        if operation.get("op") == "copy":
            copied_bytes += len(
                msgspec.json.encode(_get_value(target, _parse_pointer(operation.get("from")), optional=True))
            )
            if copied_bytes > MAX_COPIED_BYTES:
                raise _rejected_patch()
        target = _apply_operation(target, operation)
        if not isinstance(target, dict):
            raise _rejected_patch()
    return target


def _apply_operation(target: Any, operation: dict[str, Any]) -> Any:
    name, path = operation.get("op"), _parse_pointer(operation.get("path"))
    if name in ("replace", "test") and "value" not in operation:
        raise _rejected_patch()
    if name == "add":
        return _set_value(target, path, operation.get("value"), insert=True)
    if name == "replace":
        if not isinstance(_get_value(target, path[:-1]), dict):  # a field need not be there, an element must
            _get_value(target, path)
        return _set_value(target, path, operation["value"], insert=False)
    if name == "remove":
        _get_value(target, path)
        return _set_value(target, path, _MISSING, insert=False)
    if name == "test":
        if _get_value(target, path, optional=operation["value"] is None) != operation["value"]:
            raise _rejected_patch()
        return target
    if name in ("move", "copy"):
        source = _parse_pointer(operation.get("from"))
        # a copy of a field that is not there is null, which takes away
        may_be_absent = name == "copy" and bool(source) and isinstance(_get_value(target, source[:-1]), dict)
        value = _get_value(target, source, optional=may_be_absent)
        if name == "move":
            if path[: len(source)] == source and path != source:
                raise _rejected_patch()
            target = _set_value(target, source, _MISSING, insert=False)
        return _set_value(target, path, value, insert=True)
    raise _rejected_patch()


def _parse_pointer(pointer: Any) -> list[str]:
    if not isinstance(pointer, str):
        raise _rejected_patch()
    if pointer and not pointer.startswith("/"):
        raise BadRequest(f"a JSON patch's path begins with a slash: {pointer!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _parse_index(step: str, length: int) -> int:
    if step == "0" or (step.isascii() and step.isdigit() and not step.startswith("0")):
        index = int(step)
        if index < length:
            return index
    raise _rejected_patch()


def _get_value(target: Any, path: list[str], *, optional: bool = False) -> Any:
    for step in path:
        if isinstance(target, dict) and step in target:
            target = target[step]
        elif isinstance(target, list):
            target = target[_parse_index(step, len(target))]
        elif optional:
            return None
        else:
            raise _rejected_patch()
    return target


def _set_value(target: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    """A copy of `target` with `value` at the path, or (_MISSING) without what is there."""
    if not path:
        return None if value is _MISSING else value
    step, rest = path[0], path[1:]
    if isinstance(target, dict):
        out = dict(target)
        if rest:
            if step not in out:
                raise _rejected_patch()
            out[step] = _set_value(out[step], rest, value, insert=insert)
        elif value is _MISSING:
            del out[step]
        else:
            out[step] = value
        return out
    if isinstance(target, list):
        return _set_list_item(target, path, value, insert)
    raise _rejected_patch()


def _set_list_item(target: list[Any], path: list[str], value: Any, insert: bool) -> list[Any]:
    step, rest, items = path[0], path[1:], list(target)
    if rest:
        index = _parse_index(step, len(items))
        items[index] = _set_value(items[index], rest, value, insert=insert)
    elif value is _MISSING:
        del items[_parse_index(step, len(items))]
    elif insert:
        items.insert(len(items) if step == "-" else _parse_index(step, len(items) + 1), value)
    else:
        items[_parse_index(step, len(items))] = value
    return items
