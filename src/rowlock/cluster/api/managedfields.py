"""Who owns which field: `metadata.managedFields`, and server-side apply, which decides by it.

Every write that names a manager records what it changed (`recorded`); a server-side apply (`applied`) merges a
configuration into the live object, refuses to overwrite other managers' fields unless forced, and removes the fields
that this manager applied before and no longer names. `now` is text. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.cluster.api import fieldsets, types
from rowlock.cluster.api.fieldsets import Fields
from rowlock.errors import BadRequest, Cause, Conflict
from rowlock.kinds import Kind
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
    return [e for e in objects.meta(obj).get("managedFields") or () if e.get("manager") and "fieldsV1" in e]


def _fields(entry: Entry) -> Fields:
    return set(fieldsets.paths(entry["fieldsV1"]))


def _with(obj: Object, found: Iterable[Entry], settled: bool = False) -> Object:
    ordered = sorted(found, key=lambda e: (e["operation"] != "Apply", e.get("time", ""), e["manager"]))
    meta = {**obj["metadata"], "managedFields": Applied(ordered) if settled else ordered}
    if not ordered:
        del meta["managedFields"]
    return {**obj, "metadata": meta}


def first(kind: Kind, obj: Object, author: Author) -> list[Entry]:
    """The entry of a new object, all of whose fields belong to its author; none for one that has nothing but a name."""
    fields = fieldsets.tree(obj, types.of(kind), applied=False, custom=kind.custom)
    return [_entry(kind, author, "Update", fields)] if fields else []


def recorded(kind: Kind, old: Object, new: Object, author: Author) -> Object:
    """The update with what it changed noted: taken from other managers, given to this one.

    `new` carries the entries to begin with; whether `old` has any does not matter."""
    before = entries(new)
    changes = fieldsets.difference(old, new, types.of(kind), custom=kind.custom)
    if not changes:
        return _with(new, before)
    gained, lost = changes.added | changes.modified, changes.removed
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
    if objects.meta(config).get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    node = types.of(kind)
    fields = fieldsets.tree(config, node, applied=True, custom=kind.custom)
    mine = _entry(kind, author, "Apply", fields)
    if live is None:
        return _with(config, [mine], settled=True)
    named = set(fieldsets.paths(fields))
    bare = objects.changed(live, "metadata.managedFields", None)
    new = fieldsets.merged(bare, config, node)
    changes = fieldsets.difference(bare, new, node, custom=kind.custom)
    prior, others = _split(live, author)
    contested = (changes.modified | changes.added) & named
    others = _contested(others, contested, force or _handed_over(others, contested, live, author, kind))
    kept = named.union(*(_fields(e) for e in others))
    gone = (_fields(prior) if prior else set()) - kept
    if gone:
        new = fieldsets.without(new, node, gone, kept)
    if new == bare:  # who changes nothing but who owns what leaves no time, as on a real server
        del mine["time"]
        mine |= {"time": prior["time"]} if prior and "time" in prior else {}
    if author.manager == KUBECTL and LAST_APPLIED in objects.annotations(new):
        new = _noted(new, config)
    return _with(new, [*others, mine] if fields else others, settled=True)


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
    own = set(fieldsets.paths(fieldsets.tree(before, types.of(kind), applied=True, custom=kind.custom)))
    return all(_fields(entry) & contested <= own for entry in others)


def _noted(new: Object, config: Object) -> Object:
    """The object with its note of what was applied last, for those who go back to `kubectl apply`."""
    meta = {k: v for k, v in objects.meta(config).items() if k != "managedFields"}
    if LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {k: v for k, v in meta["annotations"].items() if k != LAST_APPLIED}
    text = json.dumps({**config, "metadata": meta}, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    return objects.changed(new, "metadata.annotations", {**objects.annotations(new), LAST_APPLIED: text})


def _split(live: Object, author: Author) -> tuple[Entry | None, list[Entry]]:
    """This manager's earlier configuration, and everybody else's entries."""
    prior, others = None, []
    for entry in entries(live):
        same_door = entry.get("subresource", "") == author.subresource
        if entry["operation"] == "Apply" and entry["manager"] == author.manager and same_door:
            prior = entry
        else:
            others.append(entry)
    return prior, others


def _contested(others: list[Entry], changed: Fields, force: bool) -> list[Entry]:
    """The others' entries without the fields that this apply takes over. Raises Conflict unless it is forced."""
    conflicts: dict[str, list[str]] = {}
    rest = []
    for entry in others:
        own = _fields(entry)
        lost = own & changed
        if lost and not force:
            conflicts.setdefault(_named(entry), []).extend(fieldsets.spoken(p) for p in sorted(lost))
        left = own - lost
        if left:
            rest.append(entry if not lost else {**entry, "fieldsV1": fieldsets.tree_of(left)})
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
