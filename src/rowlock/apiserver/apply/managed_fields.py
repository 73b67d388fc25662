"""Field ownership: `metadata.managedFields`, and server-side apply, which depends on it.

Every write that names a manager records what it changed (`record_update`); a server-side apply (`apply_configuration`) merges a
configuration into the live object, refuses to overwrite other managers' fields unless forced, and removes the fields
that this manager applied before and no longer names. An object without entries keeps none until the first apply, which
assigns its existing fields to `before-first-apply`. `now` is text. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.apiserver.apply import apply_merge, field_sets
from rowlock.apiserver.apply.field_sets import Fields, Path
from rowlock.apiserver.schema import types
from rowlock.errors import Cause, Conflict
from rowlock.kinds import POD, Kind
from rowlock.objects import Object

MAX_UPDATE_ENTRIES = 10
"""Update entries that are kept per object; older ones are merged into one, `ancient-changes`."""
_CONFLICT_PREFIX = "conflict with "


class SettledManagedFields(list[dict[str, Any]]):
    """managedFields that server-side apply has already computed: admission records no further changes."""


@dataclass(frozen=True, slots=True)
class FieldManager:
    """The writer's name, the time as RFC 3339 text, and the subresource."""

    name: str
    now: str
    subresource: str = ""


Entry = dict[str, Any]


def _make_entry(kind: Kind, manager: FieldManager, operation: str, fields: field_sets.Tree) -> Entry:
    author = {"manager": manager.name, "operation": operation, "apiVersion": kind.api_version, "time": manager.now}
    part = {"subresource": manager.subresource} if manager.subresource else {}
    return {**author, "fieldsType": "FieldsV1", "fieldsV1": fields, **part}


def entries_of(obj: Object) -> list[Entry]:
    return _readable_entries(objects.meta(obj).get("managedFields")) or []


def _readable_entries(raw_entries: Any) -> list[Entry] | None:
    """The entries, only the last of each manager and subresource; None if one of them is malformed, which invalidates all, as on a
    real server. An entry without fields owns nothing."""
    if not isinstance(raw_entries, list) or not all(map(_is_readable, raw_entries)):
        return None
    return _last_entries(raw_entries)


def _last_entries(readable: list[Entry]) -> list[Entry]:
    return list({_entry_key(e): e for e in readable if "fieldsV1" in e}.values())


def _is_readable(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("operation") in ("Apply", "Update")
        and bool(entry.get("apiVersion"))
        and entry.get("fieldsType") == "FieldsV1"
        and field_sets.is_tree(entry.get("fieldsV1", {}))
    )


def _entry_key(entry: Entry) -> tuple[str, ...]:
    applied = entry["operation"] == "Apply"
    version = "" if applied else str(entry.get("apiVersion", ""))
    return entry.get("manager", ""), entry["operation"], version, str(entry.get("subresource", ""))


def _owned_fields(entry: Entry) -> Fields:
    return set(field_sets.paths(entry["fieldsV1"]))


def _sort_entries(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda e: (e["operation"] != "Apply", e.get("time", ""), e.get("manager", "")))


def _with_entries(obj: Object, entries: Iterable[Entry], settled: bool = False) -> Object:
    ordered = _sort_entries(entries)
    meta = {**obj["metadata"], "managedFields": SettledManagedFields(ordered) if settled else ordered}
    if not ordered and not settled:
        del meta["managedFields"]
    return {**obj, "metadata": meta}


def initial_entries(stored: Any, requested: Any) -> list[Entry]:
    """The entries before a write is recorded: a client may send its own, and resets them with [] or one empty entry. A missing
    or malformed list resets nothing."""
    if requested in ([], [{}]):
        return []
    if requested and requested != stored:  # an update usually sends the stored entries back, which were checked before
        entries = _readable_entries(requested)
        if entries is not None:
            return entries
    return _last_entries(stored or [])


def record_scale(
    kind: Kind, before: list[Entry], replicas_path: str, manager: FieldManager, *, changed: int | None
) -> list[Entry]:
    """The entries after a write of the replicas through the scale subresource; `changed`: the new number, None = unchanged. If the

    field had owners, the writer becomes its owner; if it had none, none is recorded. Owners by update get a separate entry without
    a time, as on a real server, where a scale's entries have another version than the object's."""
    path = tuple(f"f:{step}" for step in replicas_path.split("."))
    owners = [entry for entry in before if path in _owned_fields(entry)]
    kept_entries: list[Entry] = []
    for entry in before:
        keeps = entry not in owners or (changed is None and entry["operation"] == "Apply")
        kept_entries += [entry] if keeps else _without_fields(entry, {path})
    replicas_tree = field_sets.tree_of({path})
    if changed is not None and owners:  # a scale does not write a zero
        owners = [_make_entry(kind, manager, "Update", replicas_tree)] if changed else []
    updates = ({k: v for k, v in e.items() if k != "time"} for e in owners if e["operation"] != "Apply")
    return _sort_entries([*kept_entries, *({**e, "fieldsV1": replicas_tree} for e in updates)])


def is_writable_through(kind: Kind, subresource: str, path: Path) -> bool:
    """Whether a write through this subresource ("" = the object itself) can change this field, and so own it."""
    if not subresource:
        return path[0] != "f:status" or "status" not in kind.subresources
    if subresource != "status":
        return True
    if kind.custom:
        return path[0] == "f:status"
    return path[0] != "f:spec" and not (kind is POD and path[:2] in _NOT_WRITTEN_BY_STATUS)


_NOT_WRITTEN_BY_STATUS = frozenset({("f:metadata", "f:deletionTimestamp"), ("f:metadata", "f:ownerReferences")})


def creation_entries(kind: Kind, obj: Object, manager: FieldManager) -> list[Entry]:
    """The entry of a new object, whose author owns all fields; empty if it has no ownable field."""
    fields = field_sets.new_object_fields(obj, types.schema_of(kind))
    return [_make_entry(kind, manager, "Update", fields)] if fields else []


def record_update(kind: Kind, old: Object, new: Object, manager: FieldManager) -> Object:
    """The updated object with the changed fields moved from other managers to this one.

    `new` must have the entries before the write (`initial_entries`); those of `old` are ignored."""
    before: list[Entry] = objects.meta(new).get("managedFields") or []
    if not before:
        return _with_entries(new, [])
    changes = field_sets.difference(old, new, types.schema_of(kind))
    gained = {path for path in changes.added | changes.modified if is_writable_through(kind, manager.subresource, path)}
    lost = changes.removed
    if not gained and not lost:
        return _with_entries(new, before)
    mine = gained.union(*(_owned_fields(e) - lost for e in before if _is_by(e, manager, "Update")))
    rest: list[Entry] = []
    for entry in before:
        if not _is_by(entry, manager, "Update"):
            rest += _without_fields(entry, gained | lost)
    if mine:
        rest.append(_make_entry(kind, manager, "Update", field_sets.tree_of(mine)))
    return _with_entries(new, _cap_updates(kind, rest))


def _is_by(entry: Entry, manager: FieldManager, operation: str) -> bool:
    author = entry.get("manager", ""), entry["operation"], entry.get("subresource", "")
    return author == (manager.name, operation, manager.subresource)


def _without_fields(entry: Entry, lost: Fields) -> list[Entry]:
    """The entry without these fields; empty if nothing is left."""
    if not any(field_sets.contains(entry["fieldsV1"], path) for path in lost):
        return [entry] if entry["fieldsV1"] else []
    own = _owned_fields(entry)
    return [{**entry, "fieldsV1": field_sets.tree_of(own - lost)}] if own - lost else []


def _cap_updates(kind: Kind, entries: list[Entry]) -> list[Entry]:
    updates = sorted((e for e in entries if e["operation"] == "Update"), key=lambda e: str(e.get("time", "")))
    if len(updates) <= MAX_UPDATE_ENTRIES:
        return entries
    old = updates[: len(updates) - MAX_UPDATE_ENTRIES + 1]
    fields: Fields = set().union(*(_owned_fields(e) for e in old))
    manager = FieldManager("ancient-changes", str(old[-1].get("time", "")))
    recent = [e for e in entries if e not in old]
    return [*recent, _make_entry(kind, manager, "Update", field_sets.tree_of(fields))]


# ---------------------------------------------------------------- server-side apply


def apply_configuration(
    kind: Kind, live: Object | None, config: Object, manager: FieldManager, *, force: bool
) -> Object:
    """The live object after the apply. Raises Conflict with one cause per changed field that another manager owns."""
    node, subresource = types.schema_of(kind), manager.subresource
    unmanaged = objects.with_field(live, "metadata.managedFields", None) if live else {"metadata": {}}
    before = (entries_of(live) or _before_first_apply(kind, unmanaged, manager)) if live else []
    prior = next((entry for entry in before if _is_by(entry, manager, "Apply")), None)
    others = [entry for entry in before if entry is not prior]
    config_paths = set(field_sets.paths(field_sets.config_fields(config, node)))
    owned_paths = {
        path for path in field_sets.ownable_fields(config_paths) if is_writable_through(kind, subresource, path)
    }
    new = apply_merge.merge_config(unmanaged, config, node)
    if prior and (own := _owned_fields(prior)) - config_paths:  # else the manager gives up none of its fields
        new = apply_merge.prune_unowned(new, node, own, config_paths.union(*map(_owned_fields, others)))
    changes = field_sets.difference(unmanaged, new, node)
    changed = {path for path in changes.added | changes.modified if is_writable_through(kind, subresource, path)}
    force = force or (live is not None and _is_kubectl_migration(others, changed, live, manager, kind))
    others = _resolve_conflicts(others, changed, changes.removed, force)
    mine = _make_entry(kind, manager, "Apply", field_sets.tree_of(owned_paths))
    if not field_sets.differ(unmanaged, new, node):  # an apply without changes does not update the time
        del mine["time"]
        mine |= {"time": prior["time"]} if prior and "time" in prior else {}
    if manager.name == KUBECTL and LAST_APPLIED in objects.annotations(new):
        new = _with_last_applied(new, config)
    return _with_entries(new, [*others, mine] if owned_paths else others, settled=True)


def _before_first_apply(kind: Kind, live: Object, manager: FieldManager) -> list[Entry]:
    """The entry for the existing fields of an object without entries, at its first apply."""
    fields = field_sets.new_object_fields(live, types.schema_of(kind))
    own = {path for path in field_sets.paths(fields) if is_writable_through(kind, manager.subresource, path)}
    first_manager = FieldManager("before-first-apply", manager.now, manager.subresource)
    return [_make_entry(kind, first_manager, "Update", field_sets.tree_of(own))] if own else []


KUBECTL, LAST_APPLIED = "kubectl", "kubectl.kubernetes.io/last-applied-configuration"


def _is_kubectl_migration(
    others: list[Entry], contested: Fields, live: Object, manager: FieldManager, kind: Kind
) -> bool:
    """Whether `kubectl apply --server-side` takes over fields of an earlier `kubectl apply` without a conflict."""
    last_applied = objects.annotations(live).get(LAST_APPLIED)
    if manager.name != KUBECTL or not last_applied:
        return False
    before = objects.written_json(last_applied)
    if not isinstance(before, dict):
        return False
    own = set(field_sets.paths(field_sets.config_fields(before, types.schema_of(kind))))
    return all(_owned_fields(entry) & contested <= own for entry in others)


def _with_last_applied(new: Object, config: Object) -> Object:
    """The object with an updated last-applied annotation, for users who return to `kubectl apply`."""
    meta = {k: v for k, v in objects.meta(config).items() if k != "managedFields"}
    if LAST_APPLIED in (meta.get("annotations") or {}):
        meta["annotations"] = {k: v for k, v in meta["annotations"].items() if k != LAST_APPLIED}
    text = json.dumps({**config, "metadata": meta}, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    return objects.with_field(new, "metadata.annotations", {**objects.annotations(new), LAST_APPLIED: text})


def _resolve_conflicts(others: list[Entry], changed: Fields, removed: Fields, force: bool) -> list[Entry]:
    """The other managers' entries without the fields that this apply takes over or removes. Raises Conflict unless forced."""
    conflicts: dict[str, list[str]] = {}
    rest: list[Entry] = []
    for entry in others:
        lost = _owned_fields(entry) & changed
        if lost and not force:
            conflicts.setdefault(_describe_manager(entry), []).extend(field_sets.path_text(p) for p in sorted(lost))
        rest += _without_fields(entry, changed | removed)
    if conflicts:
        raise _conflict_error(conflicts)
    return rest


def _describe_manager(entry: Entry) -> str:
    if entry["operation"] == "Apply":
        return f'"{entry.get("manager", "")}"'
    subresource = f' with subresource "{entry["subresource"]}"' if entry.get("subresource") else ""
    return f'"{entry.get("manager", "")}"{subresource} using {entry["apiVersion"]}'


def _conflict_error(conflicts: dict[str, list[str]]) -> Conflict:
    causes = [
        Cause("FieldManagerConflict", _CONFLICT_PREFIX + who, path)
        for who, fields in conflicts.items()
        for path in fields
    ]
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
