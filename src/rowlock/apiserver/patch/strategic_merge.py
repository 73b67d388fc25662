"""Strategic merge patch: a merge patch whose lists merge by key where the table of types says so. Pure.

Directives: `$patch: replace|delete|merge` in an object or a list's element, `$deleteFromPrimitiveList/F`,
`$setElementOrder/F` (order of the result), `$retainKeys` (drop the other keys).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rowlock.apiserver.schema import types
from rowlock.errors import BadRequest, UnknownError

MAX_DEPTH = 100
_DELETED: Any = object()


_DELETE, _ORDER, _RETAIN, _PATCH = "$deleteFromPrimitiveList/", "$setElementOrder/", "$retainKeys", "$patch"


def strategic_merge(target: Any, patch: Any, node: types.Schema, depth: int = 0) -> Any:
    """The target after the patch. Raises BadRequest, UnknownError."""
    if depth > MAX_DEPTH:
        raise BadRequest(f"the patch is nested more than {MAX_DEPTH} levels deep")
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != _PATCH}
    if directive == "delete":
        return {}
    if _PATCH in patch:
        raise UnknownError(f"unknown patch type: {directive}")
    out = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        if not isinstance(patch[_RETAIN], list):
            raise BadRequest("invalid patch format of retainKeys")
        retained = {key for key in patch[_RETAIN] if isinstance(key, str)}
        out = {k: v for k, v in out.items() if k in retained}
    for key, value in patch.items():
        if not key.startswith("$"):
            child, live = types.field_schema(node, key) or types.ANYTHING, out.get(key)
            _merge_key(out, key, value, child, depth)
            if isinstance(value, list) and isinstance(live, list) and f"{_ORDER}{key}" not in patch:
                out[key] = _order_like_patch(live, out.get(key), value, child)
    for key, value in patch.items():
        _apply_directive(out, key, value, node)
    return out


def _merge_key(out: dict[str, Any], key: str, value: Any, node: types.Schema, depth: int) -> None:
    if value is None:
        out.pop(key, None)
    elif key not in out:
        if (stripped := _strip_directives(value, depth)) is not None:
            out[key] = stripped
    elif isinstance(value, dict):
        out[key] = strategic_merge(out[key], value, node, depth + 1)
    elif isinstance(value, list) and _patch_strategy(node) == "merge":
        out[key] = _merge_list(out[key] or [], value, node, depth)
    else:
        out[key] = value


def _strip_directives(value: Any, depth: int) -> Any:
    """A patch value for a missing target: there is nothing to merge with, so directives and nulls are dropped."""
    if depth > MAX_DEPTH:
        raise BadRequest(f"the patch is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        if _PATCH in value:
            return None
        fields = {k: _strip_directives(v, depth + 1) for k, v in value.items() if not k.startswith("$")}
        return {k: v for k, v in fields.items() if v is not None}
    if isinstance(value, list):
        elements = [_strip_directives(v, depth + 1) if isinstance(v, dict) else v for v in value]
        return [e for e, v in zip(elements, value, strict=True) if e is not None or v is None]
    return value


def _patch_strategy(node: types.Schema) -> str:
    return "merge" if "merge" in str(node.get("x-kubernetes-patch-strategy", "")).split(",") else "replace"


def _merge_list(live: list[Any], patch: list[Any], node: types.Schema, depth: int) -> list[Any]:
    key = node.get("x-kubernetes-patch-merge-key")
    if not key:
        present = {_element_identity(None, v) for v in live}
        return [*live, *(v for v in patch if _element_identity(None, v) not in present)]
    if any(isinstance(e, dict) and e.get(_PATCH) == "replace" for e in patch):
        return [e for e in patch if not (isinstance(e, dict) and e.get(_PATCH) == "replace" and key not in e)]
    out, child = list(live), types.item_schema(node)
    if not all(isinstance(element, dict) for element in patch):
        raise UnknownError("list element types are not identical: the list is merged by key, its elements are objects")
    positions: dict[str, list[int]] = {}  # indexes by key, to merge long lists in linear time
    for index, live_element in enumerate(live):
        if isinstance(live_element, dict):
            positions.setdefault(_element_identity(key, live_element), []).append(index)
    for element in patch:
        if key not in element:
            raise UnknownError(f"an element of the list does not contain declared merge key: {key}")
        identity = _element_identity(key, element)
        if element.get(_PATCH) == "delete":
            for index in positions.pop(identity, ()):
                out[index] = _DELETED
        elif identity in positions:
            index = positions[identity][0]
            out[index] = strategic_merge(out[index], element, child, depth + 1)
        else:
            positions[identity] = [len(out)]
            out.append(strategic_merge({}, element, child, depth + 1))
    return [element for element in out if element is not _DELETED]


def _order_like_patch(live: list[Any], merged: Any, patch: list[Any], node: types.Schema) -> Any:
    """The merged list in a real server's order without `$setElementOrder`: elements in the patch come in its order; each
    other element follows, unless it was before the next one of these in the live list."""
    if _patch_strategy(node) != "merge" or not isinstance(merged, list):
        return merged
    identity = partial(_element_identity, node.get("x-kubernetes-patch-merge-key"))
    rank = {identity(e): i for i, e in enumerate(patch)}
    patched = sorted((e for e in merged if identity(e) in rank), key=lambda e: rank[identity(e)])
    others = [e for e in merged if identity(e) not in rank]
    live_index = {identity(e): i for i, e in enumerate(live)}
    out, at = [], 0
    for element in patched:
        place = live_index.get(identity(element), -1)
        while at < len(others) and live_index.get(identity(others[at]), len(live)) < place:
            out.append(others[at])
            at += 1
        out.append(element)
    return [*out, *others[at:]]


def _element_identity(merge_key: str | None, element: Any) -> str:
    return repr(element.get(merge_key) if merge_key and isinstance(element, dict) else element)


def _apply_directive(out: dict[str, Any], key: str, value: Any, node: types.Schema) -> None:
    if key.startswith(_DELETE):
        name = key[len(_DELETE) :]
        if isinstance(out.get(name), list):
            removed = {_element_identity(None, v) for v in value} if isinstance(value, list) else set()
            out[name] = [v for v in out[name] if _element_identity(None, v) not in removed]
    elif key.startswith(_ORDER):
        name = key[len(_ORDER) :]
        if isinstance(out.get(name), list) and isinstance(value, list):
            out[name] = _apply_element_order(out[name], value, types.field_schema(node, name) or types.ANYTHING)
    elif key.startswith("$") and key not in (_PATCH, _RETAIN):
        raise BadRequest(f'unknown patch directive "{key}"')


def _apply_element_order(elements: list[Any], order: list[Any], node: types.Schema) -> list[Any]:
    """The elements in `order` in that order; each other element stays after the element that it followed."""
    identity = partial(_element_identity, node.get("x-kubernetes-patch-merge-key"))
    rank = {identity(e): i for i, e in enumerate(order)}
    position, ranked = -1, []
    for index, element in enumerate(elements):
        own = rank.get(identity(element))
        position = own if own is not None else position
        ranked.append((position, own is None, index, element))
    return [element for *_, element in sorted(ranked, key=lambda r: r[:3])]
