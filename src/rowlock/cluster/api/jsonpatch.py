"""JSON patch (RFC 6902) on values that are never changed in place. Pure.

Failures answer as the real API server does: a patch that cannot be read is BadRequest, one that does not fit the
object is 422 without details.
"""

from __future__ import annotations

from typing import Any

from rowlock.cluster.api import golang
from rowlock.errors import BadRequest, Invalid

OPERATIONS = 10_000
_MISSING: Any = object()


def _unfit() -> Invalid:
    return Invalid("the server rejected our request due to an error in our request", details={})


def patched(target: Any, patch: Any) -> Any:
    """The value after all operations, in order; all or nothing."""
    if patch is None:  # to Go, an empty list
        return target
    if not isinstance(patch, list):
        raise BadRequest(f"error decoding patch: {golang.unmarshal(patch, 'value of type []handlers.jsonPatchOp')}")
    for operation in patch:
        if not isinstance(operation, dict):
            text = golang.unmarshal(operation, "value of type handlers.jsonPatchOp")
            raise BadRequest(f"error decoding patch: {text}")
        for field in ("op", "path", "from"):
            if not isinstance(operation.get(field), str | None):
                text = golang.unmarshal(operation[field], f"struct field jsonPatchOp.{field} of type string")
                raise BadRequest(f"error decoding patch: {text}")
    if len(patch) > OPERATIONS:
        raise BadRequest(
            f"the allowed maximum operations in a JSON patch is {OPERATIONS}, got {len(patch)}: send several patches"
        )
    for operation in patch:
        target = _one(target, operation)
        if not isinstance(target, dict):
            raise _unfit()
    return target


def _one(target: Any, operation: dict[str, Any]) -> Any:
    name, path = operation.get("op"), _steps(operation.get("path"))
    if name in ("replace", "test") and "value" not in operation:
        raise _unfit()
    if name == "add":
        return _put(target, path, operation.get("value"), insert=True)
    if name == "replace":
        if not isinstance(_get(target, path[:-1]), dict):  # a field need not be there, an element must
            _get(target, path)
        return _put(target, path, operation["value"], insert=False)
    if name == "remove":
        _get(target, path)
        return _put(target, path, _MISSING, insert=False)
    if name == "test":
        if _get(target, path, optional=operation["value"] is None) != operation["value"]:
            raise _unfit()
        return target
    if name in ("move", "copy"):
        source = _steps(operation.get("from"))
        # a copy of a field that is not there is null, which takes away
        absent = name == "copy" and bool(source) and isinstance(_get(target, source[:-1]), dict)
        value = _get(target, source, optional=absent)
        if name == "move":
            if path[: len(source)] == source and path != source:
                raise _unfit()
            target = _put(target, source, _MISSING, insert=False)
        return _put(target, path, value, insert=True)
    raise _unfit()


def _steps(pointer: Any) -> list[str]:
    if not isinstance(pointer, str):
        raise _unfit()
    if pointer and not pointer.startswith("/"):
        raise BadRequest(f"a JSON patch's path begins with a slash: {pointer!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _index(step: str, length: int) -> int:
    if step == "0" or (step.isascii() and step.isdigit() and not step.startswith("0")):
        index = int(step)
        if index < length:
            return index
    raise _unfit()


def _get(target: Any, path: list[str], *, optional: bool = False) -> Any:
    for step in path:
        if isinstance(target, dict) and step in target:
            target = target[step]
        elif isinstance(target, list):
            target = target[_index(step, len(target))]
        elif optional:
            return None
        else:
            raise _unfit()
    return target


def _put(target: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    """A copy of `target` with `value` at the path, or (_MISSING) without what is there."""
    if not path:
        return None if value is _MISSING else value
    step, rest = path[0], path[1:]
    if isinstance(target, dict):
        out = dict(target)
        if rest:
            if step not in out:
                raise _unfit()
            out[step] = _put(out[step], rest, value, insert=insert)
        elif value is _MISSING:
            del out[step]
        else:
            out[step] = value
        return out
    if isinstance(target, list):
        return _put_in_list(target, path, value, insert)
    raise _unfit()


def _put_in_list(target: list[Any], path: list[str], value: Any, insert: bool) -> list[Any]:
    step, rest, items = path[0], path[1:], list(target)
    if rest:
        index = _index(step, len(items))
        items[index] = _put(items[index], rest, value, insert=insert)
    elif value is _MISSING:
        del items[_index(step, len(items))]
    elif insert:
        items.insert(len(items) if step == "-" else _index(step, len(items) + 1), value)
    else:
        items[_index(step, len(items))] = value
    return items
