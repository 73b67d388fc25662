"""Applies the operations of a JSON patch (RFC 6902) without changing the original value. Pure.

An operation that does not fit the value is refused as by the real API server: 422 without details.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rowlock.errors import BadRequest, Invalid

MAX_COPIED_BYTES = 3 * 1024 * 1024
"""Bytes of JSON that the `copy` operations of one patch may add: kube-apiserver's `JSONPatchMaxCopyBytes`."""
MAX_MOVED_ITEMS = 50_000_000
"""List elements that one patch may shift by inserting and removing before them: about 30 ms. A real server has no such limit."""
_MISSING: Any = object()


def _rejected_patch() -> Invalid:
    return Invalid("the server rejected our request due to an error in our request", details={})


class PatchedDocument:
    """The value while a patch is applied. The original is never changed; copies made for this patch are changed in place, so
    that ten thousand operations copy a list of ten thousand only once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._own: dict[int, Any] = {}
        """Lists and dicts made for this patch, by id; the references keep each id from being reused."""
        self._copied_bytes = self._moved_items = 0

    def apply(self, patch: list[dict[str, Any]]) -> Any:
        for operation in patch:
            self._apply_operation(operation)
            if not isinstance(self._root, dict):
                raise _rejected_patch()
        return self._root

    def _apply_operation(self, operation: dict[str, Any]) -> None:
        name, path = operation.get("op"), _parse_pointer(operation.get("path"))
        if name in ("replace", "test") and "value" not in operation:
            raise _rejected_patch()
        if name == "add":
            self._set_value(path, operation.get("value"), insert=True)
        elif name == "replace":
            if not isinstance(self._get_value(path[:-1]), dict):  # a field need not exist, a list element must
                self._get_value(path)
            self._set_value(path, operation["value"], insert=False)
        elif name == "remove":
            self._get_value(path)
            self._set_value(path, _MISSING, insert=False)
        elif name == "test":
            if self._get_value(path, optional=operation["value"] is None) != operation["value"]:
                raise _rejected_patch()
        elif name in ("move", "copy"):
            self._move_or_copy(path, _parse_pointer(operation.get("from")), is_copy=name == "copy")
        else:
            raise _rejected_patch()

    def _move_or_copy(self, path: list[str], source: list[str], *, is_copy: bool) -> None:
        # copying a missing field yields null, which removes the target
        may_be_absent = is_copy and bool(source) and isinstance(self._get_value(source[:-1]), dict)
        value = self._get_value(source, optional=may_be_absent)
        if is_copy:
            encoded = msgspec.json.encode(value)
            self._copied_bytes += len(encoded)
            if self._copied_bytes > MAX_COPIED_BYTES:
                raise _rejected_patch()
            if isinstance(value, dict | list):  # original and copy must not share structure
                value = msgspec.json.decode(encoded)
        else:
            if path[: len(source)] == source and path != source:
                raise _rejected_patch()
            self._set_value(source, _MISSING, insert=False)
        self._set_value(path, value, insert=True)

    def _get_value(self, path: list[str], *, optional: bool = False) -> Any:
        target = self._root
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

    def _set_value(self, path: list[str], value: Any, *, insert: bool) -> None:
        """Set the value at the path, or remove it (`_MISSING`)."""
        if not path:
            self._root = None if value is _MISSING else value
            return
        self._root = target = self._own_copy(self._root)
        for step in path[:-1]:
            if isinstance(target, dict) and step not in target:
                raise _rejected_patch()
            place = step if isinstance(target, dict) else _parse_index(step, len(target))
            inner = self._own_copy(target[place])
            target[place] = inner
            target = inner
        if isinstance(target, list):
            self._set_item(target, path[-1], value, insert=insert)
        elif value is _MISSING:
            del target[path[-1]]
        else:
            target[path[-1]] = value

    def _set_item(self, items: list[Any], step: str, value: Any, *, insert: bool) -> None:
        if value is not _MISSING and not insert:
            items[_parse_index(step, len(items))] = value
            return
        if insert and step == "-":
            items.append(value)
            return
        index = _parse_index(step, len(items) + insert)
        self._moved_items += len(items) - index
        if self._moved_items > MAX_MOVED_ITEMS:
            raise BadRequest(
                f"a JSON patch may move {MAX_MOVED_ITEMS} elements of lists by what it adds before them and removes: replace the list"
            )
        if insert:
            items.insert(index, value)
        else:
            del items[index]

    def _own_copy(self, value: Any) -> Any:
        """The list or dict itself if it was made for this patch, else a copy. Raises Invalid for any other value."""
        if id(value) in self._own:
            return value
        if not isinstance(value, dict | list):
            raise _rejected_patch()
        made = value.copy() if isinstance(value, list) else dict(value)
        self._own[id(made)] = made
        return made


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
