"""Field sets, as in managedFields: the fields of an object, and the fields in which two objects differ.

A field is a path of elements in FieldsV1 notation: `f:spec`, `k:{"name":"c"}` for an element of a keyed list,
`v:"x"` for a member of a set. Whether a list is keyed, a set or one atomic value comes from the table of types. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rowlock.apiserver.schema import structs, types

Path = tuple[str, ...]
Fields = set[Path]
Tree = dict[str, Any]
"""FieldsV1: nested dicts. `{}` is a member; `.` marks a member that also has members below it."""

_SYSTEM_FIELDS = frozenset(
    "name namespace uid creationTimestamp resourceVersion generation managedFields selfLink".split()
)
_MISSING: Any = object()
_ONLY_TEXT = {str}


_encode = msgspec.json.Encoder(order="sorted").encode


def _json(value: Any) -> str:
    return _encode(value).decode()


def _json_texts(values: Iterable[str]) -> list[str]:
    """Each text as JSON; `values` must not be empty."""
    return b"\0".join(map(_encode, values)).decode().split("\0")  # NUL never occurs in JSON


def new_object_fields(obj: dict[str, Any], node: types.Schema) -> Tree:
    """The fields that the creator of a new object owns."""
    shape = _shape(types.resolve_ref(node))
    tree: Tree = {}
    for key, value in obj.items():
        if key in ("apiVersion", "kind"):
            continue
        if key == "metadata":
            value = {k: v for k, v in value.items() if k not in _SYSTEM_FIELDS}
            if not value:
                continue
        if not shape.is_zero(key, value):
            tree[f"f:{key}"] = _subtree(value, *shape.step(key))
    return tree


def config_fields(config: dict[str, Any], node: types.Schema) -> Tree:
    """The fields that a configuration names, including nulls and empty maps, but without empty keyed lists."""
    return _config_tree(config, node) or {}


def ownable_fields(fields: Iterable[Path]) -> Fields:
    """The fields that a manager can own: neither apiVersion and kind nor the system's metadata."""
    return {
        p for p in fields if p not in _UNOWNABLE_PATHS and not (p[0] == "f:metadata" and p[1][2:] in _SYSTEM_FIELDS)
    }


_UNOWNABLE_PATHS = frozenset({("f:apiVersion",), ("f:kind",), ("f:metadata",)})


def _config_tree(value: Any, node: types.Schema) -> Tree | None:
    """The fields that a configuration names at and below a value: `{}` means the value itself, None no field."""
    shape = _shape(node)
    if not isinstance(value, dict | list) or shape.atomic or value == {}:
        return {}
    out: Tree = {}
    if isinstance(value, list):
        if not shape.is_list:
            return {}
        child = types.item_schema(node)
        for element in value:
            out[path_element(element, node)] = _with_itself(_config_tree(element, child))
        return out or None
    declared = shape.node.get("properties") or {}
    for key, element in value.items():
        below = _config_tree(element, shape.step(key)[0])
        if key not in declared:
            out[f"f:{key}"] = _with_itself(below)
        elif below is not None:
            out[f"f:{key}"] = below
    return out or None


def _with_itself(below: Tree | None) -> Tree:
    return {".": {}, **below} if below else {}


@dataclass(frozen=True, slots=True)
class _Shape:
    """The properties of a schema that matter for field sets, cached."""

    node: types.Schema
    atomic: bool
    is_list: bool
    """Whether the schema is a list; a list without a schema is an atomic value."""
    has_free_keys: bool
    keys: tuple[str, ...]
    zeros: dict[str, Any]
    """Fields that every object of a built-in kind has, even if empty, with their zero values: setting a field to that changes nothing."""
    steps: dict[str, tuple[types.Schema, bool]] = field(default_factory=dict)

    def step(self, key: str) -> tuple[types.Schema, bool]:
        """The schema of a field, and whether the field is itself a member when it has subfields."""
        step = self.steps.get(key)
        if step is None:
            own_member = self.has_free_keys or (key != "metadata" and key not in self.zeros)
            step = types.field_schema(self.node, key) or types.ANYTHING, own_member
            if key in (self.node.get("properties") or ()):  # do not cache free keys, of which there may be any number
                self.steps[key] = step
        return step

    def is_zero(self, key: str, value: Any) -> bool:
        """Whether the value is that of a field that was not set."""
        return key in self.zeros and (not value or value == self.zeros[key])

    def pair(self, old: dict[str, Any], new: dict[str, Any], key: str) -> tuple[Any, ...]:
        """Both values of a field; for a missing field the zero value if it is always written, else `_MISSING`."""
        missing = self.zeros.get(key, _MISSING)
        return old.get(key, missing), new.get(key, missing)


def _shape(node: types.Schema) -> _Shape:
    shape = _SHAPES.get(id(node))
    if shape is None or shape.node is not node:
        keys = tuple(node.get("x-kubernetes-list-map-keys") or ())
        is_list, zeros = node.get("type") == "array", structs.zeros(node)
        shape = _Shape(node, types.is_atomic(node), is_list, types.is_map(node), keys, zeros)
        _SHAPES[id(node)] = shape
    return shape


_SHAPES: dict[int, _Shape] = {}
"""Shapes by the id of their schema. Schemas live as long as the process, and a shape references its own."""


def _subtree(value: Any, node: types.Schema, own_member: bool) -> Tree:
    """The fields at and below a new value; `own_member`: the value itself is a member."""
    if not value or not isinstance(value, (dict, list)):
        return {}
    shape = _shape(node)
    if shape.atomic:
        return {}
    out: Tree = {".": {}} if own_member else {}
    if isinstance(value, list):
        if not shape.is_list:
            return {}
        if not shape.keys and {*map(type, value)} == _ONLY_TEXT:  # a set of names, perhaps of thousands
            return {**out, **{f"v:{text}": {} for text in _json_texts(value)}}
        child, known = types.item_schema(node), dict[tuple[str, ...], Tree]()
        is_atomic = _shape(child).atomic
        for element in value:
            step = _path_element(element, shape)
            if step.startswith("k:") and not is_atomic and {*map(type, element.values())} == _ONLY_TEXT:
                names = tuple(element)  # thousands of variables with the same keys share one tree, never changed
                out[step] = known.get(names) or known.setdefault(
                    names, {".": {}, **{f"f:{name}": {} for name in names}}
                )
                continue
            out[step] = {} if step.startswith("v:") else _subtree(element, child, True)
        return out
    for key, element in value.items():
        if element.__class__ is str and element:  # most fields are leaves
            out[f"f:{key}"] = {}
        elif own_member or not shape.is_zero(key, element):
            child, own = shape.step(key)
            out[f"f:{key}"] = _subtree(element, child, own_member or own)
    return out


def path_element(element: Any, node: types.Schema) -> str:
    """The path element (`k:…` or `v:…`) of an element of a keyed list or a set."""
    return _path_element(element, _shape(node))


def _path_element(element: Any, shape: _Shape) -> str:
    keys = shape.keys
    if keys and isinstance(element, dict):
        if len(keys) == 1 and (key := element.get(keys[0])).__class__ is str:  # containers, variables, conditions
            return f'k:{{"{keys[0]}":{_json(key)}}}'
        child = types.item_schema(shape.node)
        key_values = {key: _key_value(element, key, child) for key in keys}
        return "k:" + _json({k: v for k, v in key_values.items() if v is not None})
    return "v:" + _json(element)


def _key_value(element: dict[str, Any], key: str, node: types.Schema) -> Any:
    if key in element:
        value = element[key]
        return int(value) if value.__class__ is float and value.is_integer() else value
    declared = (types.resolve_ref(node).get("properties") or {}).get(key) or {}
    return declared.get("default")


def is_tree(fields: Any) -> bool:
    """Whether a client's fieldsV1 is well-formed."""
    return isinstance(fields, dict) and all(_is_step(step) and is_tree(below) for step, below in fields.items())


def _is_step(step: str) -> bool:
    if step[:2] not in ("k:", "v:"):
        return step == "." or step.startswith(("f:", "i:"))
    try:
        value = msgspec.json.decode(step[2:])
    except msgspec.MsgspecError:
        return False
    return step.startswith("v:") or isinstance(value, dict)


def paths(fields: Tree, at: Path = ()) -> Iterator[Path]:
    """The paths of the members of a tree."""
    for step, below in fields.items():
        if step == ".":
            yield at
        elif not below:
            yield (*at, step)
        else:
            yield from paths(below, (*at, step))


def contains(fields: Tree, path: Path) -> bool:
    """Whether `path` is a member of the tree."""
    for step in path:
        if step not in fields:
            return False
        fields = fields[step]
    return not fields or "." in fields


def tree_of(fields: Fields) -> Tree:
    """The inverse of `paths`."""
    root: Tree = {}
    for path in sorted(fields):  # parents come before their children
        node = root
        for end, step in enumerate(path):
            if end and not node and path[:end] in fields:
                node["."] = {}
            node = node.setdefault(step, {})
    return root


@dataclass(slots=True)
class Difference:
    """The fields in which two objects differ."""

    added: Fields = field(default_factory=set)
    modified: Fields = field(default_factory=set)
    removed: Fields = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.removed)


def difference(old: dict[str, Any], new: dict[str, Any], node: types.Schema) -> Difference:
    """The fields that a write changed, without the system's metadata."""
    shape, comparer = _shape(node), _Comparer(Difference())
    for key in {**old, **new}:
        if key in ("apiVersion", "kind"):
            continue
        pair = shape.pair(old, new, key)
        if key == "metadata":
            metas = (m if isinstance(m, dict) else {} for m in pair)
            pair = tuple({k: v for k, v in meta.items() if k not in _SYSTEM_FIELDS} for meta in metas)
        comparer.compare(pair, shape.step(key), (f"f:{key}",))
    return comparer.difference


def differ(old: dict[str, Any], new: dict[str, Any], node: types.Schema) -> bool:
    """Whether anything differs, including system fields and the order of lists."""
    if old == new:
        return False
    pairs = (_shape(node).pair(old, new, key) for key in {**old, **new})
    return any(a is not b and a != b for a, b in pairs)


@dataclass(frozen=True, slots=True)
class _Comparer:
    difference: Difference

    def compare(self, pair: tuple[Any, ...], step: tuple[types.Schema, bool], at: Path) -> None:
        """Compare two values of a field; `step`: its schema, and whether it is itself a member when it has subfields."""
        (old, new), (node, own_member) = pair, step
        if old is new or (old is not _MISSING and new is not _MISSING and old == new):
            return
        if old is _MISSING or new is _MISSING:
            value, into = (new, self.difference.added) if old is _MISSING else (old, self.difference.removed)
            below = _subtree(value, node, own_member)
            into.update(paths({at[-1]: below}, at[:-1]) if below else [at])
            return
        is_atomic = (
            types.is_atomic(node) or not isinstance(old, dict | list | None) or not isinstance(new, dict | list | None)
        )
        if is_atomic or not (old or new) or (old and new and type(old) is not type(new)):
            self.difference.modified.add(at)
        elif isinstance(old or new, list) and not _shape(node).is_list:
            self.difference.modified.add(at)
        elif isinstance(old or new, list):
            self._compare_lists((old or [], new or []), node, at)
        else:
            shape = _shape(node)
            for key in {**(old or {}), **(new or {})}:
                self.compare(shape.pair(old or {}, new or {}, key), shape.step(key), (*at, f"f:{key}"))

    def _compare_lists(self, pair: tuple[list[Any], list[Any]], node: types.Schema, at: Path) -> None:
        before, after = ({path_element(e, node): e for e in side} for side in pair)
        child = types.item_schema(node)
        for step in {**before, **after}:
            self.compare((before.get(step, _MISSING), after.get(step, _MISSING)), (child, True), (*at, step))


def ensure_named_members(fields: Fields, node: types.Schema) -> Fields:
    """The fields, and each declared field that is above one of them."""
    members, nodes = set(fields), dict[Path, types.Schema]({(): node})
    for path in fields:
        for end in range(1, len(path)):
            at, step = path[:end], path[end - 1]
            parent = nodes[at[:-1]]
            if at not in nodes:
                below = types.field_schema(parent, step[2:]) if step.startswith("f:") else types.item_schema(parent)
                nodes[at] = below or types.ANYTHING
            if step.startswith("f:") and step[2:] in (types.resolve_ref(parent).get("properties") or {}):
                members.add(at)
    return members


def path_text(path: Path) -> str:
    """A field as in conflict messages: `.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += "." + step[2:]
        elif step.startswith("k:"):
            text += "[" + ",".join(f"{k}={_json(v)}" for k, v in json.loads(step[2:]).items()) + "]"
        else:
            text += f"[={step[2:]}]"
    return text
