"""The rules of a pod's volumes: one source each, paths that stay inside, modes that are modes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rowlock.cluster.api.validation_containers import IN_FILES, field_causes, measured_causes, within_causes
from rowlock.cluster.api.wording import dns_label_problems, duplicate, forbidden, invalid_value, not_supported, required
from rowlock.errors import Cause
from rowlock.quantity import parse

Causes = Iterator[Cause]

_HOST_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"


def volume_causes(volumes: Sequence[dict[str, Any]], path: str, names: set[str]) -> Causes:
    """The rules of all volumes; `names` gets theirs."""
    for index, volume in enumerate(volumes):
        where, name = f"{path}[{index}]", volume.get("name") or ""
        if not name:
            yield required(f"{where}.name")
        else:
            for problem in dns_label_problems(name):
                yield invalid_value(f"{where}.name", name, problem)
            if name in names:
                yield duplicate(f"{where}.name", name)
        names.add(name)
        sources = [key for key in volume if key != "name"]
        for extra in sources[1:]:
            yield forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
        for source in sources[:1]:
            yield from _source_causes(source, volume[source] or {}, f"{where}.{source}")


def _source_causes(source: str, about: dict[str, Any], path: str) -> Causes:
    for field in _REQUIRED.get(source, ()):
        if not about.get(field):
            yield required(f"{path}.{field}")
    if source == "hostPath":
        if ".." in str(about.get("path") or "").split("/"):
            yield invalid_value(f"{path}.path", about["path"], "must not contain '..'")
        if (about.get("type") or "") not in _HOST_TYPES:
            yield not_supported(f"{path}.type", about["type"], _HOST_TYPES)
    elif source == "emptyDir":
        if "sizeLimit" in about and parse(about["sizeLimit"]) < 0:
            yield forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")
    elif source == "nfs":
        if about.get("path") and not about["path"].startswith("/"):
            yield invalid_value(f"{path}.path", about["path"], "must be an absolute path")
    elif source in ("configMap", "secret"):
        yield from _mode_causes(about, "defaultMode", path)
        yield from _file_causes(about.get("items") or (), f"{path}.items")
    elif source == "downwardAPI":
        yield from _mode_causes(about, "defaultMode", path)
        yield from _own_causes(about.get("items") or (), path)
    elif source == "projected":
        yield from _mode_causes(about, "defaultMode", path)
        yield from _projected_causes(about.get("sources") or (), f"{path}.sources")


_REQUIRED = {
    "configMap": ("name",),
    "secret": ("secretName",),
    "persistentVolumeClaim": ("claimName",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
}


def _projected_causes(sources: Sequence[dict[str, Any]], path: str) -> Causes:
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        for extra in list(source)[1:]:
            yield forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
        for kind in ("secret", "configMap"):
            if kind in source:
                if not source[kind].get("name"):
                    yield required(f"{where}.{kind}.name")
                yield from _file_causes(source[kind].get("items") or (), f"{where}.{kind}.items")
        if "downwardAPI" in source:
            yield from _own_causes(source["downwardAPI"].get("items") or (), f"{where}.downwardAPI")
        if "serviceAccountToken" in source and not source["serviceAccountToken"].get("path"):
            yield required(f"{where}.serviceAccountToken.path")


def _mode_causes(about: dict[str, Any], field: str, path: str) -> Causes:
    mode = about.get(field)
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid_value(f"{path}.{field}", mode, _MODE_TEXT)


def _inside_causes(path: str, field: str) -> Causes:
    if not path:
        yield required(field)
        return
    yield from within_causes(path, field)
    if path.startswith("..") and not path.startswith("../"):
        yield invalid_value(field, path, "must not start with '..'")


def _file_causes(items: Sequence[dict[str, Any]], path: str) -> Causes:
    for index, item in enumerate(items):
        if not item.get("key"):
            yield required(f"{path}[{index}].key")
        yield from _inside_causes(item.get("path") or "", f"{path}[{index}].path")
        yield from _mode_causes(item, "mode", f"{path}[{index}]")


def _own_causes(items: Sequence[dict[str, Any]], path: str) -> Causes:
    """Files that tell a pod about itself; the real server names the volume, not the item, for some of them."""
    for item in items:
        yield from _inside_causes(item.get("path") or "", f"{path}.path")
        if "fieldRef" in item:
            yield from field_causes(item["fieldRef"], f"{path}.fieldRef", IN_FILES)
            if "resourceFieldRef" in item:
                text = "fieldRef and resourceFieldRef can not be specified simultaneously"
                yield invalid_value(path, "resource", text)
        elif "resourceFieldRef" in item:
            yield from measured_causes(item["resourceFieldRef"], f"{path}.resourceFieldRef", of=True)
        else:
            yield required(path, "one of fieldRef and resourceFieldRef is required")
        yield from _mode_causes(item, "mode", path)
