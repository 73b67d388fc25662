"""Who owns which field: `metadata.managedFields`, and server-side apply, which decides by it.

Every write that names a manager records what it changed (`recorded`); a server-side apply (`applied`) merges a
configuration into the live object, refuses to overwrite other managers' fields unless forced, and removes the fields
that this manager applied before and no longer names. Of an object that has no entries none are kept, until somebody
applies: then all that it has is of `before-first-apply`. `now` is text. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.cluster.api import applying, fieldsets, types
from rowlock.cluster.api.fieldsets import Fields, Path
from rowlock.errors import BadRequest, Cause, Conflict
from rowlock.kinds import POD, Kind
from rowlock.objects import Object

UPDATERS = 10
"""Update entries kept per object; the oldest beyond that become one, `ancient-changes`."""
_RULES = "conflict with "


class Applied(list[dict[str, Any]]):
    """managedFields that server-side apply has already settled: admission records nothing more."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes, through which door, when."""

    manager: str
    now: str
    subresource: str = ""


Entry = dict[str, Any]


def _entry(kind: Kind, author: Author, operation: str, fields: fieldsets.Tree) -> Entry:
    entry: Entry = {
        "manager": author.manager,
        "operation": operation,
        "apiVersion": kind.api_version,
        "time": author.now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if author.subresource:
        entry["subresource"] = author.subresource
    return entry


def check(given: Any) -> None:
    """What a client writes there itself. Raises BadRequest when it is not what server-side apply could have written."""
    well = isinstance(given, list) and all(
        isinstance(e, dict)
        and fieldsets.is_tree(e.get("fieldsV1", {}))
        and e.get("operation", "Update") in ("Apply", "Update")
        and all(isinstance(e.get(k, ""), str) for k in ("manager", "operation", "apiVersion", "time", "subresource"))
        for e in given
    )
    if given is not None and not well:
        raise BadRequest("metadata.managedFields: entries must have manager, operation, apiVersion and fieldsV1")


def entries(obj: Object) -> list[Entry]:
    return _read(objects.meta(obj).get("managedFields") or ())


def _read(given: Iterable[Any]) -> list[Entry]:
    """Entries that can be read; of those that one author has through one door, the last."""
    return list({_identity(e): e for e in given if e.get("manager") and "fieldsV1" in e}.values())


def _identity(entry: Entry) -> tuple[str, ...]:
    applied = entry["operation"] == "Apply"
    version = "" if applied else str(entry.get("apiVersion", ""))
    return str(entry["manager"]), str(entry["operation"]), version, str(entry.get("subresource", ""))


def _fields(entry: Entry) -> Fields:
    return set(fieldsets.paths(entry["fieldsV1"]))


def _ordered(found: Iterable[Entry]) -> list[Entry]:
    return sorted(found, key=lambda e: (e["operation"] != "Apply", e.get("time", ""), e["manager"]))


def _with(obj: Object, found: Iterable[Entry], settled: bool = False) -> Object:
    ordered = _ordered(found)
    meta = {**obj["metadata"], "managedFields": Applied(ordered) if settled else ordered}
    if not ordered and not settled:
        del meta["managedFields"]
    return {**obj, "metadata": meta}


def base(known: Any, given: Any) -> list[Entry]:
    """The entries to begin with: a client may write its own, and resets them with none or an empty one. Who says
    nothing, or what can be read, does not mean to."""
    if given in ([], [{}]):
        return []
    if isinstance(given, list) and given and all(e.get("manager") and "fieldsV1" in e for e in given):
        return _read(given)
    return _read(known or ())


def scaled(kind: Kind, before: list[Entry], count: str, author: Author, *, changed: int | None) -> list[Entry]:
    """The entries after a write of the number of replicas, at the path `count`, through the scale: to which it changed.

    There its owners are those of the scale; where it has none, none are kept. Who owns it by updates does so in an entry
    of its own, of no time: so does a real server, which reads a scale's entries as of another version than the object's."""
    path = tuple(f"f:{step}" for step in count.split("."))
    rest, owners = [], []
    for entry in before:
        own = _fields(entry)
        if path not in own:
            rest.append(entry)
            continue
        applied = entry["operation"] == "Apply"
        if changed is None and applied:
            rest.append(entry)
        elif left := own - {path}:
            rest.append({**entry, "fieldsV1": fieldsets.tree_of(left)})
        owners.append(entry)
    alone = fieldsets.tree_of({path})
    if changed is not None and owners:  # a scale does not write a zero
        owners = [_entry(kind, author, "Update", alone)] if changed else []
    updates = ({k: v for k, v in e.items() if k != "time"} for e in owners if e["operation"] != "Apply")
    return _ordered([*rest, *({**e, "fieldsV1": alone} for e in updates)])


def through(kind: Kind, door: str, path: Path) -> bool:
    """Whether a write through this door, a subresource or "", changes this field and so can own it."""
    if not door:
        return path[0] != "f:status" or "status" not in kind.subresources
    if door != "status":
        return True
    if kind.custom:
        return path[0] == "f:status"
    return path[0] != "f:spec" and not (kind is POD and path[:2] in _NOT_OF_A_STATUS)


_NOT_OF_A_STATUS = frozenset({("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")})


def first(kind: Kind, obj: Object, author: Author) -> list[Entry]:
    """The entry of a new object, all of whose fields belong to its author; none for one that has nothing but a name."""
    fields = fieldsets.brought(obj, types.of(kind), custom=kind.custom)
    return [_entry(kind, author, "Update", fields)] if fields else []


def recorded(kind: Kind, old: Object, new: Object, author: Author) -> Object:
    """The update with what it changed noted: taken from other managers, given to this one.

    `new` carries the entries to begin with; whether `old` has any does not matter."""
    before = entries(new)
    if not before:
        return _with(new, [])
    changes = fieldsets.difference(old, new, types.of(kind), custom=kind.custom)
    gained = {path for path in changes.added | changes.modified if through(kind, author.subresource, path)}
    lost = changes.removed
    if not gained and not lost:
        return _with(new, before)
    mine: Fields = set()
    rest = []
    for entry in before:
        own = _fields(entry)
        if _is_update_of(entry, author):
            mine |= own
            continue
        left = own - gained - lost
        if left:
            rest.append(entry if left == own else {**entry, "fieldsV1": fieldsets.tree_of(left)})
    mine = (mine - lost) | gained
    if mine:
        rest.append(_entry(kind, author, "Update", fieldsets.tree_of(mine)))
    return _with(new, _capped(kind, rest))


def _is_update_of(entry: Entry, author: Author) -> bool:
    same_door = entry.get("subresource", "") == author.subresource
    return bool(entry["operation"] == "Update" and entry["manager"] == author.manager and same_door)


def _capped(kind: Kind, found: list[Entry]) -> list[Entry]:
    updates = sorted((e for e in found if e["operation"] == "Update"), key=lambda e: str(e.get("time", "")))
    if len(updates) <= UPDATERS:
        return found
    old = updates[: len(updates) - UPDATERS + 1]
    fields: Fields = set().union(*(_fields(e) for e in old))
    author = Author("ancient-changes", str(old[-1].get("time", "")))
    kept = [e for e in found if e not in old]
    return [*kept, _entry(kind, author, "Update", fieldsets.tree_of(fields))]


# ---------------------------------------------------------------- server-side apply


def applied(kind: Kind, live: Object | None, config: Object, author: Author, *, force: bool) -> Object:
    """The live object after the configuration. Raises Conflict with one cause per field that somebody else owns."""
    node, door = types.of(kind), author.subresource
    bare = objects.changed(live, "metadata.managedFields", None) if live else {"metadata": {}}
    before = (entries(live) or _unmanaged(kind, bare, author)) if live else []
    prior, others = _split(before, author)
    said = set(fieldsets.paths(fieldsets.configured(config, node)))
    named = {path for path in fieldsets.owned(said) if through(kind, door, path)}
    new = applying.merged(bare, config, node)
    if prior and (own := _fields(prior)) - said:  # who names all that it named lets nothing go
        new = applying.pruned(new, node, own, said.union(*map(_fields, others)))
    changes = fieldsets.difference(bare, new, node, custom=kind.custom)
    changed = {path for path in changes.added | changes.modified if through(kind, door, path)}
    force = force or (live is not None and _handed_over(others, changed, live, author, kind))
    others = _contested(others, changed, changes.removed, force)
    mine = _entry(kind, author, "Apply", fieldsets.tree_of(named))
    if not fieldsets.differ(bare, new, node, custom=kind.custom):  # who changes nothing leaves no time
        del mine["time"]
        mine |= {"time": prior["time"]} if prior and "time" in prior else {}
    if author.manager == KUBECTL and LAST_APPLIED in objects.annotations(new):
        new = _noted(new, config)
    return _with(new, [*others, mine] if named else others, settled=True)


def _unmanaged(kind: Kind, live: Object, author: Author) -> list[Entry]:
    """Whose the fields are of an object that has no entries, when it is applied to for the first time."""
    fields = fieldsets.brought(live, types.of(kind), custom=kind.custom)
    own = {path for path in fieldsets.paths(fields) if through(kind, author.subresource, path)}
    first = Author("before-first-apply", author.now, author.subresource)
    return [_entry(kind, first, "Update", fieldsets.tree_of(own))] if own else []


KUBECTL, LAST_APPLIED = "kubectl", "kubectl.kubernetes.io/last-applied-configuration"


def _handed_over(others: list[Entry], contested: Fields, live: Object, author: Author, kind: Kind) -> bool:
    """Whether `kubectl apply --server-side` takes over what `kubectl apply` has written: then nobody else minds."""
    noted = objects.annotations(live).get(LAST_APPLIED)
    if author.manager != KUBECTL or not noted:
        return False
    try:
        before = json.loads(noted)
    except ValueError:
        return False
    if not isinstance(before, dict):
        return False
    own = set(fieldsets.paths(fieldsets.configured(before, types.of(kind))))
    return all(_fields(entry) & contested <= own for entry in others)


def _noted(new: Object, config: Object) -> Object:
    """The object with its note of what was applied last, for those who go back to `kubectl apply`."""
    meta = {k: v for k, v in objects.meta(config).items() if k != "managedFields"}
    if LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {k: v for k, v in meta["annotations"].items() if k != LAST_APPLIED}
    text = json.dumps({**config, "metadata": meta}, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    return objects.changed(new, "metadata.annotations", {**objects.annotations(new), LAST_APPLIED: text})


def _split(before: list[Entry], author: Author) -> tuple[Entry | None, list[Entry]]:
    """This manager's earlier configuration, and everybody else's entries."""
    prior, others = None, []
    for entry in before:
        same_door = entry.get("subresource", "") == author.subresource
        if entry["operation"] == "Apply" and entry["manager"] == author.manager and same_door:
            prior = entry
        else:
            others.append(entry)
    return prior, others


def _contested(others: list[Entry], changed: Fields, removed: Fields, force: bool) -> list[Entry]:
    """The others' entries without the fields that this apply takes over or away. Raises Conflict unless it is forced."""
    conflicts: dict[str, list[str]] = {}
    rest = []
    for entry in others:
        own = _fields(entry)
        lost = own & changed
        if lost and not force:
            conflicts.setdefault(_named(entry), []).extend(fieldsets.spoken(p) for p in sorted(lost))
        left = own - lost - removed
        if left:
            rest.append(entry if left == own else {**entry, "fieldsV1": fieldsets.tree_of(left)})
    if conflicts:
        raise _conflict(conflicts)
    return rest


def _named(entry: Entry) -> str:
    if entry["operation"] == "Apply":
        return f'"{entry["manager"]}"'
    door = f' with subresource "{entry["subresource"]}"' if entry.get("subresource") else ""
    return f'"{entry["manager"]}"{door} using {entry["apiVersion"]}'


def _conflict(conflicts: dict[str, list[str]]) -> Conflict:
    causes = [Cause("FieldManagerConflict", _RULES + who, path) for who, fields in conflicts.items() for path in fields]
    total = len(causes)
    parts = []
    for who, fields in sorted(conflicts.items()):
        if total == 1:
            parts.append(f"conflict with {who}: {fields[0]}")
        else:
            parts.append(f"conflicts with {who}:\n" + "\n".join(f"- {path}" for path in fields))
    head = f"Apply failed with {total} conflict{'s' if total > 1 else ''}: "
    text = head + (parts[0] if len(parts) == 1 else "\n".join(parts))
    return Conflict(text, causes=causes)
