"""Sets of fields, as managedFields has them: which fields an object has, and in which two objects differ.

A field is a path of elements in FieldsV1's own spelling: `f:spec`, `k:{"name":"c"}` for an element of a keyed list,
`v:"x"` for a member of a set. Whether a list is keyed, a set or one atomic value comes from the table of types. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rowlock.cluster.api import types

Path = tuple[str, ...]
Fields = set[Path]
Tree = dict[str, Any]
"""FieldsV1: nested, `{}` is a member, `.` marks a member that has members below it."""

_SYSTEM = frozenset(
    "name namespace uid creationTimestamp resourceVersion generation managedFields selfLink deletionTimestamp"
    " deletionGracePeriodSeconds".split()
)
_ALWAYS = frozenset({"metadata", "spec", "status", "template"})
_MISSING: Any = object()


_encode = msgspec.json.Encoder(order="sorted").encode


def _json(value: Any) -> str:
    return _encode(value).decode()


def tree(obj: dict[str, Any], node: types.Schema, *, applied: bool, custom: bool) -> Tree:
    """The fields of an object: `applied`, as a configuration names them; else, as a write brings them into being."""
    marks = _MARKS[applied, custom]
    shape = _shape(types.resolved(node))
    found: Tree = {}
    for key, value in obj.items():
        if key in ("apiVersion", "kind"):
            continue
        if key == "metadata":
            value = {k: v for k, v in value.items() if k not in _SYSTEM}
            if not value:
                continue
        if value or value != {} or not marks.always(key, node):
            found[f"f:{key}"] = marks.below(value, *marks.step(shape, key))
    return found


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a schema means for field sets, looked up once."""

    node: types.Schema
    atomic: bool
    free: bool
    keys: tuple[str, ...]
    required: frozenset[str]
    steps: dict[tuple[_Marks, str], tuple[types.Schema, bool]] = field(default_factory=dict)

    def child(self, key: str) -> types.Schema:
        return types.field(self.node, key) or types.ANYTHING


def _shape(node: types.Schema) -> _Shape:
    found = _SHAPES.get(id(node))
    if found is None or found.node is not node:
        keys, required = node.get("x-kubernetes-list-map-keys") or (), node.get("required") or ()
        found = _Shape(node, types.atomic(node), types.is_map(node), tuple(keys), frozenset(required))
        _SHAPES[id(node)] = found
    return found


_SHAPES: dict[int, _Shape] = {}
"""By the schema's identity: schemas live in the table of types for ever, and a shape keeps its own."""


@dataclass(frozen=True, slots=True, eq=False)
class _Marks:
    applied: bool
    custom: bool

    def step(self, shape: _Shape, key: str) -> tuple[types.Schema, bool]:
        """The schema of a field, and whether it is a member of its own."""
        found = shape.steps.get((self, key))
        if found is None:
            found = shape.child(key), shape.free or self.itself(key, shape.node)
            if key in (shape.node.get("properties") or ()):  # all other keys are the users', and have no end
                shape.steps[self, key] = found
        return found

    def itself(self, key: str, parent: types.Schema) -> bool:
        """Whether a declared field that has parts is a member of its own."""
        if self.applied or key == "metadata":
            return False
        return self.custom or not (key in _ALWAYS or key in _shape(parent).required or _is_claim(key, parent))

    def always(self, key: str, parent: types.Schema) -> bool:
        """Whether every object of a built-in kind has this part, be it empty: then bringing it is no change."""
        return not (self.applied or self.custom) and (key in _ALWAYS or _is_claim(key, parent))

    def pair(self, old: Any, new: Any, key: str, parent: types.Schema) -> tuple[Any, Any]:
        """Both values of a field; a part that is always there is empty where it is not written."""
        if (old is _MISSING or new is _MISSING) and self.always(key, parent):
            return ({} if old is _MISSING else old, {} if new is _MISSING else new)
        return old, new

    def below(self, value: Any, node: types.Schema, itself: bool) -> Tree:
        if not value or not isinstance(value, (dict, list)):
            return {}
        shape = _shape(node)
        if shape.atomic:
            return {}
        out: Tree = {".": {}} if itself else {}
        if isinstance(value, list):
            child = types.items(node)
            for element in value:
                step = element_of(element, node)
                out[step] = {} if step.startswith("v:") else self.below(element, child, True)
            return out
        for key, element in value.items():
            if not element or element.__class__ is str:  # most fields are leaves
                out[f"f:{key}"] = {}
            else:
                out[f"f:{key}"] = self.below(element, *self.step(shape, key))
        return out


_MARKS = {(applied, custom): _Marks(applied, custom) for applied in (False, True) for custom in (False, True)}


def element_of(element: Any, node: types.Schema) -> str:
    """How an element of a keyed list or a set is called."""
    keys = _shape(node).keys
    if keys and isinstance(element, dict):
        if len(keys) == 1 and element.get(keys[0]).__class__ is str:  # containers, volumes, variables, conditions
            return f'k:{{"{keys[0]}":{_json(element[keys[0]])}}}'
        child = types.items(node)
        found = {key: _key_value(element, key, child) for key in keys}
        return "k:" + _json({k: v for k, v in found.items() if v is not None})
    return "v:" + _json(element)


def _key_value(element: dict[str, Any], key: str, node: types.Schema) -> Any:
    if key in element:
        return element[key]
    declared = (types.resolved(node).get("properties") or {}).get(key) or {}
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
        found = msgspec.json.decode(step[2:])
    except msgspec.MsgspecError:
        return False
    return step.startswith("v:") or isinstance(found, dict)


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
    return _sorted(root)


def _sorted(fields: Tree) -> Tree:
    return {step: _sorted(fields[step]) for step in sorted(fields)}


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
    marks = _MARKS[False, custom]
    comparison = _Comparison(Difference(), marks)
    for key in {**old, **new}:
        if key in ("apiVersion", "kind"):
            continue
        a, b = old.get(key, _MISSING), new.get(key, _MISSING)
        if key == "metadata":
            a, b = ({k: v for k, v in (m or {}).items() if k not in _SYSTEM} for m in (a, b))
        child = types.field(node, key) or types.ANYTHING
        comparison.of(marks.pair(a, b, key, node), child, (f"f:{key}",), marks.itself(key, node))
    return comparison.found


@dataclass(frozen=True, slots=True)
class _Comparison:
    found: Difference
    marks: _Marks

    def of(self, pair: tuple[Any, Any], node: types.Schema, at: Path, itself: bool) -> None:
        """`itself`: a field with parts is a member of its own."""
        old, new = pair
        if old is new or (old is not _MISSING and new is not _MISSING and old == new):
            return
        if old is _MISSING or new is _MISSING:
            value, into = (new, self.found.added) if old is _MISSING else (old, self.found.removed)
            below = self.marks.below(value, node, itself)
            into.update(paths({at[-1]: below}, at[:-1]) if below else [at])
            return
        whole = types.atomic(node) or type(old) is not type(new) or not isinstance(old, dict | list)
        if whole or (itself and not (old and new)):
            self.found.modified.add(at)
        elif isinstance(old, list):
            self._of_lists((old, new), node, at)
        else:
            free = types.is_map(node)
            for key in {**old, **new}:
                child = types.field(node, key) or types.ANYTHING
                step = self.marks.pair(old.get(key, _MISSING), new.get(key, _MISSING), key, node)
                self.of(step, child, (*at, f"f:{key}"), free or self.marks.itself(key, node))

    def _of_lists(self, pair: tuple[list[Any], list[Any]], node: types.Schema, at: Path) -> None:
        before, after = ({element_of(e, node): e for e in side} for side in pair)
        child = types.items(node)
        for step in {**before, **after}:
            self.of((before.get(step, _MISSING), after.get(step, _MISSING)), child, (*at, step), True)


# ---------------------------------------------------------------- merging a configuration


def merged(live: Any, config: Any, node: types.Schema) -> Any:
    """The live value with everything that the configuration says."""
    node = types.resolved(node)
    if types.atomic(node) or type(live) is not type(config):
        return config
    if isinstance(config, dict):
        out = dict(live)
        for key, value in config.items():
            child = types.field(node, key) or types.ANYTHING
            out[key] = merged(out[key], value, child) if key in out else value
        return out
    if isinstance(config, list):
        return _merged_list(live, config, node)
    return config


def _merged_list(live: list[Any], config: list[Any], node: types.Schema) -> list[Any]:
    child = types.items(node)
    wanted = {element_of(e, node): e for e in config}
    out = []
    for element in live:
        step = element_of(element, node)
        out.append(merged(element, wanted.pop(step), child) if step in wanted else element)
    return [*out, *wanted.values()]


def repeated(value: Any, node: types.Schema, at: Path = ()) -> tuple[Path, str] | None:
    """The first list with keys, or set, that has an element twice: where, and how the element is called."""
    if isinstance(value, list):
        seen: set[str] = set()
        for element in () if _shape(node).atomic else value:
            step = element_of(element, node)
            if step in seen:
                return at, step
            seen.add(step)
            if found := repeated(element, types.items(node), (*at, step)):
                return found
    elif isinstance(value, dict):
        shape = _shape(node)
        for key, below in value.items():
            if isinstance(below, dict | list) and (found := repeated(below, shape.child(key), (*at, f"f:{key}"))):
                return found
    return None


def without(value: Any, node: types.Schema, gone: Fields, kept: Fields, at: Path = ()) -> Any:
    """The value without the fields `gone`; a field that has something of `kept` below it stays."""
    node = types.resolved(node)
    if not any(path[: len(at)] == at for path in gone):
        return value
    if isinstance(value, dict) and not types.atomic(node):
        out = {}
        for key, element in value.items():
            step = (*at, f"f:{key}")
            if step in gone and not any(path[: len(step)] == step for path in kept):
                continue
            child = types.field(node, key) or types.ANYTHING
            shorter = without(element, child, gone, kept, step)
            if shorter or not isinstance(shorter, dict | list) or element == shorter:
                out[key] = shorter
        return out
    if isinstance(value, list) and not types.atomic(node):
        return _list_without(value, node, gone, kept, at)
    return value


def _list_without(value: list[Any], node: types.Schema, gone: Fields, kept: Fields, at: Path) -> list[Any]:
    child, rest = types.items(node), []
    for element in value:
        step = (*at, element_of(element, node))
        if step not in gone or any(path[: len(step)] == step for path in kept):
            rest.append(without(element, child, gone, kept, step))
    return rest


def spoken(path: Path) -> str:
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
