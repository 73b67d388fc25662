"""Rules of a pod's volumes that concern several fields; the others are rows of `rules.txt`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rowlock import objects
from rowlock.apiserver.validation.containers import relative_path
from rowlock.apiserver.validation.rules import Scope, check_struct, rule
from rowlock.documents.field_errors import (
    Causes,
    dns_label_problems,
    duplicate_value,
    forbidden_field,
    invalid_value,
    invalid_values,
    required_value,
    subdomain_problems,
    too_long,
)
from rowlock.errors import Cause
from rowlock.quantity import parse

TOKEN_SOURCES = {  # shared by all pods: objects are values
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
            }
        },
    ],
    "defaultMode": 420,
}
"""The token volume that `admission/pods.py` adds to nearly every pod; it needs no validation."""


_SOURCE_ORDER = (
    "emptyDir hostPath gitRepo gcePersistentDisk awsElasticBlockStore secret nfs iscsi glusterfs flocker persistentVolumeClaim rbd cinder "
    "cephfs quobyte downwardAPI fc flexVolume configMap azureFile vsphereVolume photonPersistentDisk portworxVolume azureDisk storageos "
    "projected scaleIO csi ephemeral image"
)
_SOURCES = {source: place for place, source in enumerate(_SOURCE_ORDER.split())}
"""The sources of a volume in the order in which Kubernetes looks at them: of two, the later one is refused."""


@rule
def volume_list(spec: dict[str, Any], scope: Scope) -> Causes:
    """Check that each volume has one source and a unique name; record valid ones with their type, for the checks of mounts."""
    valid_volumes: dict[str, str] = scope.notes.setdefault("volumes", {})
    pod = objects.name(scope.outer.struct)
    for index, volume in enumerate(spec.get("volumes") or ()):
        path, name = f".volumes[{index}]", volume.get("name") or ""
        if volume.get("projected") is TOKEN_SOURCES:  # added by admission
            valid_volumes[name] = "projected"
            continue
        sources = sorted((key for key in volume if key != "name"), key=lambda key: _SOURCES.get(key, len(_SOURCES)))
        causes = [forbidden_field(f".{extra}", "may not specify more than 1 volume type") for extra in sources[1:]]
        causes += check_struct("Volume", {key: volume[key] for key in sources[:1]}, scope)
        if "ephemeral" in sources[:1] and pod and name:
            claim = f"{pod}-{name}"
            causes += invalid_values(".name", name, [f'PVC name "{claim}": {why}' for why in subdomain_problems(claim)])
        causes += invalid_values(".name", name, dns_label_problems(name)) if name else [required_value(".name")]
        if name in valid_volumes:
            causes.append(duplicate_value(".name", name))
        elif not causes:
            valid_volumes[name] = sources[0] if sources else ""
        yield from (Cause(c.reason, c.message, path + c.field) for c in causes)


@rule
def size_limit(size: Any, _: Scope) -> Causes:
    if parse(size) < 0:
        yield forbidden_field("", "SizeLimit field must be a valid resource quantity")


@rule
def absolute_path(path: str, _: Scope) -> Causes:
    if not path.startswith("/"):
        yield invalid_value("", path, "must be an absolute path")


@rule
def file_path(path: str, scope: Scope) -> Causes:
    yield from relative_path(path, scope)
    if path.startswith("..") and not path.startswith("../"):
        yield invalid_value("", path, "must not start with '..'")


@rule
def csi_driver(driver: str, _: Scope) -> Causes:
    if len(driver) > 63:
        yield too_long("", 63)
    yield from invalid_values("", driver, subdomain_problems(driver.lower()))


@rule
def access_modes(spec: dict[str, Any], _: Scope) -> Causes:
    modes = spec.get("accessModes") or ()
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden_field(".accessModes", "may not use ReadWriteOncePod with other access modes")


@rule
def storage_request(spec: dict[str, Any], _: Scope) -> Causes:
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield required_value(".resources[storage]")
    elif parse(size) <= 0:
        yield invalid_value(".resources[storage]", size, "must be greater than zero")


@rule
def downward_source(item: dict[str, Any], scope: Scope) -> Iterable[Cause]:
    field, resource = "fieldRef" in item, "resourceFieldRef" in item
    if field and resource:
        text = "fieldRef and resourceFieldRef can not be specified simultaneously"
        return [invalid_value("", "resource", text)]
    if not field and not resource:
        return [required_value("", "one of fieldRef and resourceFieldRef is required")]
    return check_struct("DownwardAPIVolumeFile resource", item, scope) if resource else ()


@rule
def one_projection(projection: dict[str, Any], _: Scope) -> Causes:
    for extra in list(projection)[1:]:
        yield forbidden_field(f".{extra}", "may not specify more than 1 volume type")


@rule
def token_path(projection: dict[str, Any], _: Scope) -> Causes:
    if "serviceAccountToken" in projection and not projection["serviceAccountToken"].get("path"):
        yield required_value("../../path")


@rule
def path_conflicts(source: dict[str, Any], scope: Scope) -> Causes:
    """Each path in a projected volume must be unique."""
    for item in source.get("items") or (source,):
        path = item.get("path")
        if path and scope.outer.is_repeated("paths", path):
            yield invalid_value("", path, "conflicting duplicate paths")
