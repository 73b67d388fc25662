"""The rules of a pod's volumes: one source each, paths that stay inside, modes that are modes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rowlock.apiserver.validation.containers import (
    VOLUME_FIELD_PATHS,
    field_ref_causes,
    relative_path_causes,
    resource_field_ref_causes,
)
from rowlock.apiserver.validation.field_errors import (
    dns_label_problems,
    duplicate_value,
    forbidden_field,
    invalid_value,
    not_supported,
    required_value,
    subdomain_problems,
)
from rowlock.apiserver.validation.placement import selector_causes
from rowlock.apiserver.validation.services import label_causes
from rowlock.errors import Cause
from rowlock.quantity import parse

Causes = Iterator[Cause]
TOKEN_SOURCES = {  # one for all pods: objects are values
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
"""What `admission/pods.py` mounts into nearly every pod: known to be right."""

_HOST_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"


def volume_causes(
    volumes: Sequence[dict[str, Any]], path: str, valid_volumes: dict[str, str], *, pod: str = ""
) -> Causes:
    """The rules of all volumes; `valid_volumes` gets the good ones with their type, which mounts may name. `pod` names claims."""
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name") or ""
        if volume.get("projected") is TOKEN_SOURCES:  # admission's own, in nearly every pod
            valid_volumes[name] = "projected"
            continue
        sources = [key for key in volume if key != "name"]
        causes = [
            forbidden_field(f"{where}.{extra}", "may not specify more than 1 volume type") for extra in sources[1:]
        ]
        for source in sources[:1]:
            causes += _volume_source_causes(source, volume[source] or {}, f"{where}.{source}")
            if source == "ephemeral" and pod and name:
                problems = subdomain_problems(f"{pod}-{name}")
                causes += [invalid_value(f"{where}.name", name, f'PVC name "{pod}-{name}": {p}') for p in problems]
        if not name:
            causes.append(required_value(f"{where}.name"))
        else:
            causes += [invalid_value(f"{where}.name", name, problem) for problem in dns_label_problems(name)]
        if name in names:
            causes.append(duplicate_value(f"{where}.name", name))
        if not causes:
            names.add(name)
            valid_volumes[name] = sources[0] if sources else ""
        yield from causes


def _volume_source_causes(source: str, spec: dict[str, Any], path: str) -> Causes:
    for field in _REQUIRED_FIELDS.get(source, ()):
        if not spec.get(field):
            yield required_value(f"{path}.{field}")
    if source == "hostPath":
        if ".." in str(spec.get("path") or "").split("/"):
            yield invalid_value(f"{path}.path", spec["path"], "must not contain '..'")
        if (spec.get("type") or "") not in _HOST_TYPES:
            yield not_supported(f"{path}.type", spec["type"], _HOST_TYPES)
    elif source == "emptyDir":
        if "sizeLimit" in spec and parse(spec["sizeLimit"]) < 0:
            yield forbidden_field(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")
    elif source == "nfs":
        if not str(spec.get("path") or "").startswith("/"):
            yield invalid_value(f"{path}.path", spec.get("path") or "", "must be an absolute path")
    elif source == "ephemeral":
        yield from _claim_template_causes(spec.get("volumeClaimTemplate"), f"{path}.volumeClaimTemplate")
    elif source == "csi":
        yield from _csi_driver_causes(spec.get("driver") or "", f"{path}.driver")
    elif source in ("configMap", "secret"):
        yield from _mode_causes(spec, "defaultMode", path)
        yield from _key_to_path_causes(spec.get("items") or (), f"{path}.items")
    elif source == "downwardAPI":
        yield from _mode_causes(spec, "defaultMode", path)
        yield from _downward_api_causes(spec.get("items") or (), path)
    elif source == "projected":
        yield from _mode_causes(spec, "defaultMode", path)
        yield from _projected_causes(spec.get("sources") or (), path)


def _csi_driver_causes(driver: str, path: str) -> Causes:
    if not driver:
        yield required_value(path)
    if len(driver) > 63:
        yield Cause("FieldValueTooLong", "Too long: may not be more than 63 bytes", path)
    for problem in subdomain_problems(driver.lower()):
        yield invalid_value(path, driver, problem)


def _claim_template_causes(template: dict[str, Any] | None, path: str) -> Causes:
    """A claim that is made with the pod."""
    if template is None:
        yield required_value(path)
        return
    yield from label_causes((template.get("metadata") or {}).get("labels") or {}, f"{path}.metadata.labels")
    yield from claim_causes(template.get("spec") or {}, f"{path}.spec")


_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def claim_causes(spec: dict[str, Any], path: str) -> Causes:
    """The rules of a claim's spec, wherever it stands."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required_value(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _ACCESS_MODES:
            yield not_supported(f"{path}.accessModes", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden_field(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")
    yield from selector_causes(spec.get("selector") or {}, f"{path}.selector")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield required_value(f"{path}.resources[storage]")
    elif parse(size) <= 0:
        yield invalid_value(f"{path}.resources[storage]", size, "must be greater than zero")
    name = spec.get("storageClassName") or ""
    for problem in subdomain_problems(name) if name else ():
        yield invalid_value(f"{path}.storageClassName", name, problem)
    if spec.get("volumeMode", "Filesystem") not in ("Block", "Filesystem"):
        yield not_supported(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))


_REQUIRED_FIELDS = {
    "awsElasticBlockStore": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "azureFile": ("secretName", "shareName"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "flexVolume": ("driver",),
    "gcePersistentDisk": ("pdName",),
    "gitRepo": ("repository",),
    "glusterfs": ("endpoints", "path"),
    "rbd": ("monitors", "image"),
    "configMap": ("name",),
    "secret": ("secretName",),
    "persistentVolumeClaim": ("claimName",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
}


def _projected_causes(sources: Sequence[dict[str, Any]], path: str) -> Causes:
    used_paths: set[str] = set()
    for index, source in enumerate(sources):
        where = f"{path}.sources[{index}]"
        for extra in list(source)[1:]:
            yield forbidden_field(f"{where}.{extra}", "may not specify more than 1 volume type")
        for kind in ("secret", "configMap"):
            if kind in source:
                if not source[kind].get("name"):
                    yield required_value(f"{where}.{kind}.name")
                yield from _key_to_path_causes(source[kind].get("items") or (), f"{where}.{kind}.items")
                yield from _path_conflict_causes(source[kind].get("items") or (), path, used_paths)
        if "downwardAPI" in source:
            yield from _downward_api_causes(source["downwardAPI"].get("items") or (), f"{where}.downwardAPI")
            yield from _path_conflict_causes(source["downwardAPI"].get("items") or (), path, used_paths)
        if "serviceAccountToken" in source:
            token = source["serviceAccountToken"]
            yield from _token_causes(token, f"{where}.serviceAccountToken", path)
            yield from _path_conflict_causes((token,), path, used_paths)


def _token_causes(token: dict[str, Any], path: str, volume_path: str) -> Causes:
    seconds, field = token.get("expirationSeconds", 3600), f"{path}.expirationSeconds"
    if seconds < 10 * 60:
        yield invalid_value(field, seconds, "may not specify a duration less than 10 minutes")
    elif seconds > 2**32:
        yield invalid_value(field, seconds, "may not specify a duration larger than 2^32 seconds")
    if not token.get("path"):
        yield required_value(f"{volume_path}.path")


def _path_conflict_causes(items: Sequence[dict[str, Any]], path: str, used_paths: set[str]) -> Causes:
    """One file comes from one place."""
    for item in items:
        if name := item.get("path"):
            if name in used_paths:
                yield invalid_value(path, name, "conflicting duplicate paths")
            used_paths.add(name)


def _mode_causes(spec: dict[str, Any], field: str, path: str) -> Causes:
    mode = spec.get(field)
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid_value(f"{path}.{field}", mode, _MODE_TEXT)


def _file_path_causes(path: str, field: str) -> Causes:
    if not path:
        yield required_value(field)
        return
    yield from relative_path_causes(path, field)
    if path.startswith("..") and not path.startswith("../"):
        yield invalid_value(field, path, "must not start with '..'")


def _key_to_path_causes(items: Sequence[dict[str, Any]], path: str) -> Causes:
    for index, item in enumerate(items):
        if not item.get("key"):
            yield required_value(f"{path}[{index}].key")
        yield from _file_path_causes(item.get("path") or "", f"{path}[{index}].path")
        yield from _mode_causes(item, "mode", f"{path}[{index}]")


def _downward_api_causes(items: Sequence[dict[str, Any]], path: str) -> Causes:
    """Files that tell a pod about itself; the real server names the volume, not the item, for some of them."""
    for item in items:
        yield from _file_path_causes(item.get("path") or "", f"{path}.path")
        if "fieldRef" in item:
            yield from field_ref_causes(item["fieldRef"], f"{path}.fieldRef", VOLUME_FIELD_PATHS)
            if "resourceFieldRef" in item:
                text = "fieldRef and resourceFieldRef can not be specified simultaneously"
                yield invalid_value(path, "resource", text)
        elif "resourceFieldRef" in item:
            yield from resource_field_ref_causes(
                item["resourceFieldRef"], f"{path}.resourceFieldRef", container_required=True
            )
        else:
            yield required_value(path, "one of fieldRef and resourceFieldRef is required")
        yield from _mode_causes(item, "mode", path)
