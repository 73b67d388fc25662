"""Every namespace has the service account `default` and the ConfigMap `kube-root-ca.crt`: clients wait for both.

In a real cluster kube-controller-manager creates them (`ServiceAccountsController`, `root-ca-cert-publisher`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import objects
from rowlock.api import (
    NOTHING,
    Change,
    Create,
    Decision,
    View,
)
from rowlock.kinds import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, Kind
from rowlock.objects import Key, Object

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
