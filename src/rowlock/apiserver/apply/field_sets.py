"""Sets of fields, as managedFields has them: which fields an object has, and in which two objects differ.

A field is a path of elements in FieldsV1's own spelling: `f:spec`, `k:{"name":"c"}` for an element of a keyed list,
`v:"x"` for a member of a set. Whether a list is keyed, a set or one atomic value comes from the table of types. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rowlock.apiserver.schema import types

Path = tuple[str, ...]
Fields = set[Path]
Tree = dict[str, Any]
"""FieldsV1: nested, `{}` is a member, `.` marks a member that has members below it."""

_SYSTEM_FIELDS = frozenset(
    "name namespace uid creationTimestamp resourceVersion generation managedFields selfLink".split()
)
_ALWAYS_WRITTEN = frozenset({"metadata", "spec", "status", "template"})
_MISSING: Any = object()


_encode = msgspec.json.Encoder(order="sorted").encode


def _json(value: Any) -> str:
    return _encode(value).decode()


def new_object_fields(obj: dict[str, Any], node: types.Schema, *, custom: bool) -> Tree:
    """The fields that a write brings into being with a new object."""
    builder = _BUILDERS[custom]
    shape = _shape(types.resolve_ref(node))
    tree: Tree = {}
    for key, value in obj.items():
        if key in ("apiVersion", "kind"):
            continue
        if key == "metadata":
            value = {k: v for k, v in value.items() if k not in _SYSTEM_FIELDS}
            if not value:
                continue
        if value or not builder.is_always_written(key, node):
            tree[f"f:{key}"] = builder.subtree(value, *builder.child_schema(shape, key))
    return tree


def config_fields(config: dict[str, Any], node: types.Schema) -> Tree:
    """The fields that a configuration names: nulls and empty maps too, but no list that would have keys and is empty."""
    return _config_tree(config, node) or {}


def ownable_fields(fields: Iterable[Path]) -> Fields:
    """Those that somebody can own: what an object is and what the system counts is nobody's."""
    return {
        p for p in fields if p not in _UNOWNABLE_PATHS and not (p[0] == "f:metadata" and p[1][2:] in _SYSTEM_FIELDS)
    }


_UNOWNABLE_PATHS = frozenset({("f:apiVersion",), ("f:kind",), ("f:metadata",)})


def _config_tree(value: Any, node: types.Schema) -> Tree | None:
    """What a value in a configuration names below itself: `{}` is the value alone, None is nothing at all."""
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
        below = _config_tree(element, shape.child(key))
        if key not in declared:
            out[f"f:{key}"] = _with_itself(below)
        elif below is not None:
            out[f"f:{key}"] = below
    return out or None


def _with_itself(below: Tree | None) -> Tree:
    return {".": {}, **below} if below else {}


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a schema means for field sets, looked up once."""

    node: types.Schema
    atomic: bool
    is_list: bool
    """Whether it is a list: one that no schema knows is one value."""
    has_free_keys: bool
    keys: tuple[str, ...]
    required: frozenset[str]
    steps: dict[tuple[_FieldSetBuilder, str], tuple[types.Schema, bool]] = field(default_factory=dict)

    def child(self, key: str) -> types.Schema:
        return types.field_schema(self.node, key) or types.ANYTHING


def _shape(node: types.Schema) -> _Shape:
    shape = _SHAPES.get(id(node))
    if shape is None or shape.node is not node:
        keys, required = node.get("x-kubernetes-list-map-keys") or (), node.get("required") or ()
        shape = _Shape(
            node,
            types.is_atomic(node),
            node.get("type") == "array",
            types.is_map(node),
            tuple(keys),
            frozenset(required),
        )
        _SHAPES[id(node)] = shape
    return shape


_SHAPES: dict[int, _Shape] = {}
"""By the schema's identity: schemas live in the table of types for ever, and a shape keeps its own."""


@dataclass(frozen=True, slots=True, eq=False)
class _FieldSetBuilder:
    custom: bool

    def child_schema(self, shape: _Shape, key: str) -> tuple[types.Schema, bool]:
        """The schema of a field, and whether it is a member of its own."""
        child = shape.steps.get((self, key))
        if child is None:
            child = shape.child(key), shape.has_free_keys or self.is_own_member(key, shape.node)
            if key in (shape.node.get("properties") or ()):  # all other keys are the users', and have no end
                shape.steps[self, key] = child
        return child

    def is_own_member(self, key: str, parent: types.Schema) -> bool:
        """Whether a declared field that has parts is a member of its own, in an object that is there already."""
        return key != "metadata" and (self.custom or not self.is_always_written(key, parent))

    def is_always_written(self, key: str, parent: types.Schema) -> bool:
        """Whether every object of a built-in kind writes this field, be it empty: then bringing it is no change."""
        return not self.custom and (key in _ALWAYS_WRITTEN or key in _shape(parent).required or _is_claim(key, parent))

    def with_zero_values(self, old: Any, new: Any, key: str, parent: types.Schema) -> tuple[Any, Any]:
        """Both values of a field; one that is always written is Go's zero where it is not."""
        if (old is _MISSING or new is _MISSING) and self.is_always_written(key, parent):
            zero = _zero_value(key, parent)
            return (zero if old is _MISSING else old, zero if new is _MISSING else new)
        return old, new

    def subtree(self, value: Any, node: types.Schema, own_member: bool) -> Tree:
        """`itself`: the value is new with all that it has."""
        if not value or not isinstance(value, (dict, list)):
            return {}
        shape = _shape(node)
        if shape.atomic:
            return {}
        out: Tree = {".": {}} if own_member else {}
        if isinstance(value, list):
            if not shape.is_list:
                return {}
            child = types.item_schema(node)
            for element in value:
                step = path_element(element, node)
                out[step] = {} if step.startswith("v:") else self.subtree(element, child, True)
            return out
        for key, element in value.items():
            if element.__class__ is str and element:  # most fields are leaves
                out[f"f:{key}"] = {}
            elif element or own_member or not self.is_always_written(key, node):
                child, own = self.child_schema(shape, key)
                out[f"f:{key}"] = self.subtree(element, child, own_member or own)
        return out


_BUILDERS = {custom: _FieldSetBuilder(custom) for custom in (False, True)}


def _zero_value(key: str, parent: types.Schema) -> Any:
    if key in _ALWAYS_WRITTEN or _is_claim(key, parent):
        return {}
    child = types.field_schema(parent, key) or types.ANYTHING
    return {"string": "", "integer": 0, "boolean": False}.get(child.get("type", ""))


def path_element(element: Any, node: types.Schema) -> str:
    """How an element of a keyed list or a set is called."""
    keys = _shape(node).keys
    if keys and isinstance(element, dict):
        if len(keys) == 1 and element.get(keys[0]).__class__ is str:  # containers, volumes, variables, conditions
            return f'k:{{"{keys[0]}":{_json(element[keys[0]])}}}'
        child = types.item_schema(node)
        key_values = {key: _key_value(element, key, child) for key in keys}
        return "k:" + _json({k: v for k, v in key_values.items() if v is not None})
    return "v:" + _json(element)


def _key_value(element: dict[str, Any], key: str, node: types.Schema) -> Any:
    if key in element:
        value = element[key]
        return int(value) if value.__class__ is float and value.is_integer() else value
    declared = (types.resolve_ref(node).get("properties") or {}).get(key) or {}
    return declared.get("default")


def _is_claim(key: str, parent: types.Schema) -> bool:
    """Resources are a part of every claim; a container need not have any."""
    return key == "resources" and "accessModes" in (_shape(parent).node.get("properties") or {})


def is_tree(fields: Any) -> bool:
    """Whether a client's own fieldsV1 is one: steps all the way down."""
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
    """The members of a tree."""
    for step, below in fields.items():
        if step == ".":
            yield at
        elif not below:
            yield (*at, step)
        else:
            yield from paths(below, (*at, step))


def tree_of(fields: Fields) -> Tree:
    """The inverse of `paths`."""
    root: Tree = {}
    for path in sorted(fields):
        node = root
        for step in path:
            node = node.setdefault(step, {})
    for path in fields:
        node = root
        for step in path:
            node = node[step]
        if node:
            node["."] = {}
    return _sort_tree(root)


def _sort_tree(fields: Tree) -> Tree:
    return {step: _sort_tree(fields[step]) for step in sorted(fields)}


@dataclass(slots=True)
class Difference:
    """In which fields two objects differ."""

    added: Fields = field(default_factory=set)
    modified: Fields = field(default_factory=set)
    removed: Fields = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.removed)


def difference(old: dict[str, Any], new: dict[str, Any], node: types.Schema, *, custom: bool) -> Difference:
    """What a write changed, apart from what belongs to the system."""
    builder = _BUILDERS[custom]
    comparison = _Comparer(Difference(), builder)
    for key in {**old, **new}:
        if key in ("apiVersion", "kind"):
            continue
        a, b = old.get(key, _MISSING), new.get(key, _MISSING)
        if key == "metadata":
            a, b = ({} if m is _MISSING else {k: v for k, v in m.items() if k not in _SYSTEM_FIELDS} for m in (a, b))
        child = types.field_schema(node, key) or types.ANYTHING
        comparison.compare(
            builder.with_zero_values(a, b, key, node), child, (f"f:{key}",), builder.is_own_member(key, node)
        )
    return comparison.difference


def differ(old: dict[str, Any], new: dict[str, Any], node: types.Schema, *, custom: bool) -> bool:
    """Whether anything is not the same, what belongs to the system and the order of lists included."""
    if old == new:
        return False
    builder = _BUILDERS[custom]
    pairs = (builder.with_zero_values(old.get(k, _MISSING), new.get(k, _MISSING), k, node) for k in {**old, **new})
    return any(a is not b and a != b for a, b in pairs)


@dataclass(frozen=True, slots=True)
class _Comparer:
    difference: Difference
    builder: _FieldSetBuilder

    def compare(self, pair: tuple[Any, Any], node: types.Schema, at: Path, own_member: bool) -> None:
        """`itself`: a field with parts is a member of its own."""
        old, new = pair
        if old is new or (old is not _MISSING and new is not _MISSING and old == new):
            return
        if old is _MISSING or new is _MISSING:
            value, into = (new, self.difference.added) if old is _MISSING else (old, self.difference.removed)
            below = self.builder.subtree(value, node, own_member)
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
            old, new, has_free_keys = old or {}, new or {}, types.is_map(node)
            for key in {**old, **new}:
                child = types.field_schema(node, key) or types.ANYTHING
                step = self.builder.with_zero_values(old.get(key, _MISSING), new.get(key, _MISSING), key, node)
                self.compare(step, child, (*at, f"f:{key}"), has_free_keys or self.builder.is_own_member(key, node))

    def _compare_lists(self, pair: tuple[list[Any], list[Any]], node: types.Schema, at: Path) -> None:
        before, after = ({path_element(e, node): e for e in side} for side in pair)
        child = types.item_schema(node)
        for step in {**before, **after}:
            self.compare((before.get(step, _MISSING), after.get(step, _MISSING)), child, (*at, step), True)


def ensure_named_members(fields: Fields, node: types.Schema) -> Fields:
    """The fields, and each declared one that has some of them below it."""
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
    """A field as conflicts name it: `.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += "." + step[2:]
        elif step.startswith("k:"):
            text += "[" + ",".join(f"{k}={_json(v)}" for k, v in json.loads(step[2:]).items()) + "]"
        else:
            text += f"[={step[2:]}]"
    return text
