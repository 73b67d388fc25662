"""Namespaces: what each one has from its start, and how it ends.

Every namespace has the service account `default` and the ConfigMap `kube-root-ca.crt`: clients wait for both. In a real cluster
kube-controller-manager creates them (`ServiceAccountsController`, `root-ca-cert-publisher`).
A namespace that is being deleted is emptied first, and its status says what holds it: the rules are those of
kube-controller-manager's namespace controller (`NamespacedResourcesDeleter`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rowlock import objects
from rowlock.api import (
    NOTHING,
    Change,
    Create,
    Decision,
    Delete,
    DeleteOptions,
    Patch,
    Update,
    View,
    Write,
)
from rowlock.kinds import CONFIG_MAP, KINDS, NAMESPACE, SERVICE_ACCOUNT, Kind
from rowlock.objects import Key, Object
from rowlock.system.finalizers import finalizers_of

_REPORT_INTERVAL = 1.0  # seconds between two reports of what holds a namespace


class NamespaceDeleter:
    """One key per namespace. Deletes everything in a namespace that is being deleted, then removes its finalizer `kubernetes`. Its status
    reports what remains, as kube-controller-manager does."""

    name = "namespace-controller"
    kinds: tuple[Kind, ...] = KINDS

    def __init__(self) -> None:
        self._next_report: dict[str, float] = {}
        """Namespace → when its status may be written again, in seconds since the epoch."""

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is NAMESPACE:
            return [Key("", objects.name(change.object))] if objects.is_deleting(change.object) else []
        namespace_name = objects.namespace(change.object)
        if not namespace_name or change.type == "Modified":
            return []
        namespace = view.get(NAMESPACE, "", namespace_name)
        return [Key("", namespace_name)] if namespace is not None and objects.is_deleting(namespace) else []

    def decide(self, view: View, key: Key, now: float) -> Decision:
        namespace = view.get(NAMESPACE, "", key.name)
        if namespace is None or not objects.is_deleting(namespace):
            self._next_report.pop(key.name, None)
            return NOTHING
        contents = [(kind, obj) for kind in KINDS if kind.namespaced for obj in view.all(kind, key.name)]
        if contents:
            deletes = tuple(_delete_object(kind, obj) for kind, obj in contents if not objects.is_deleting(obj))
            return Decision((*deletes, *self._report(namespace, contents, now)), requeue_after=_REPORT_INTERVAL)
        remaining = [f for f in objects.dig(namespace, "spec.finalizers", ()) if f != "kubernetes"]
        if remaining == objects.dig(namespace, "spec.finalizers", ()):
            return NOTHING
        return Decision((Update(NAMESPACE, objects.with_field(namespace, "spec.finalizers", remaining), "finalize"),))

    def _report(self, namespace: Object, contents: list[tuple[Kind, Object]], now: float) -> Iterable[Write]:
        """The status conditions about objects that are being deleted but still exist. Written at most once per interval, because each
        deleted object changes the counts."""
        name = objects.name(namespace)
        leaving = [(kind, obj) for kind, obj in contents if objects.is_deleting(obj)]
        if not leaving or now < self._next_report.get(name, 0.0):
            return
        self._next_report[name] = now + _REPORT_INTERVAL
        conditions = namespace_conditions(objects.dig(namespace, "status.conditions", ()), leaving, now)
        if conditions != objects.dig(namespace, "status.conditions"):
            yield Patch(NAMESPACE, "", name, {"status": {"conditions": conditions}}, "merge", "status")


def namespace_conditions(
    previous: Iterable[dict[str, Any]], leaving: Iterable[tuple[Kind, Object]], now: float
) -> list[dict[str, Any]]:
    """The conditions of a namespace that is being deleted, as `NamespacedResourcesDeleter` writes them. An unchanged condition keeps its
    lastTransitionTime."""
    resources: Counter[str] = Counter()
    finalizers: Counter[str] = Counter()
    for kind, obj in leaving:
        resources[f"{kind.plural}.{kind.group}"] += 1
        finalizers.update(finalizers_of(obj))
    counts = ", ".join(f"{resource} has {count} resource instances" for resource, count in sorted(resources.items()))
    holders = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    rows = [
        ("DeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        ("DeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        (
            "DeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        ("ContentRemaining", "SomeResourcesRemain", f"Some resources are remaining: {counts}")
        if resources
        else ("ContentRemaining", "ContentRemoved", "All content successfully removed"),
        (
            "FinalizersRemaining",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {holders}",
        )
        if finalizers
        else ("FinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
    ]
    old = {condition["type"]: condition for condition in previous}
    conditions = []
    for type_, reason, message in rows:
        status = "True" if reason.startswith("Some") else "False"
        said = {"type": f"Namespace{type_}", "status": status, "reason": reason, "message": message}
        before = old.get(said["type"], {})
        unchanged = all(before.get(field) == value for field, value in said.items())
        time = before.get("lastTransitionTime") if unchanged else objects.timestamp(now)
        conditions.append({**said, "lastTransitionTime": time})
    return conditions


def _delete_object(kind: Kind, obj: Object) -> Write:
    options = DeleteOptions(propagation="Background", uid=objects.uid(obj))
    return Delete(kind, objects.namespace(obj), objects.name(obj), options)


DEFAULT_SERVICE_ACCOUNT, ROOT_CA_CONFIG_MAP = "default", "kube-root-ca.crt"


class NamespaceDefaults:
    """One key per namespace."""

    name = "namespace-defaults"
    kinds: tuple[Kind, ...] = (NAMESPACE, SERVICE_ACCOUNT, CONFIG_MAP)

    def __init__(self, ca_certificate: str = "") -> None:
        self._ca_certificate = ca_certificate

    def keys(self, view: View, change: Change) -> Iterable[Key]:
        if change.kind is NAMESPACE:
            return (objects.key(change.object),)
        if change.type == "Deleted" and objects.name(change.object) in (DEFAULT_SERVICE_ACCOUNT, ROOT_CA_CONFIG_MAP):
            return (Key("", objects.namespace(change.object)),)
        return ()

    def decide(self, view: View, key: Key, now: float) -> Decision:
        namespace = view.get(NAMESPACE, "", key.name)
        if namespace is None or objects.is_deleting(namespace):
            return NOTHING
        defaults: tuple[tuple[Kind, str, dict[str, Any]], ...] = (
            (SERVICE_ACCOUNT, DEFAULT_SERVICE_ACCOUNT, {}),
            (
                CONFIG_MAP,
                ROOT_CA_CONFIG_MAP,
                {"data": {"ca.crt": self._ca_certificate}} if self._ca_certificate else {},
            ),
        )
        missing = [item for item in defaults if view.get(item[0], key.name, item[1]) is None]
        return Decision(tuple(Create(kind, _object(kind, key.name, name, more)) for kind, name, more in missing))


def _object(kind: Kind, namespace: str, name: str, content: dict[str, Any]) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **content}
