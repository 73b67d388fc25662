"""The runtime as it was when the TrainJob was created, kept in a ConfigMap: later changes do not affect a running job."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from rowlock.documents.yaml_reader import UnreadableYaml, read_yaml
from rowlock.kinds import CONFIG_MAP
from rowlock.objects import Object, is_controlled_by, meta, name, namespace, owner_reference, uid

KEY = "runtime"
_METADATA = ("name", "namespace", "labels", "annotations")
_LONGEST_YAML = 16_000
"""Characters of YAML that are read on the event loop: a snapshot that rowlock makes is JSON, which is read a thousand times as fast."""
_FOREIGN = "a snapshot configmap exists but is owned by another object"


class BadSnapshot(Exception):
    """A snapshot of another owner, or a malformed one."""


def snapshot_name(trainjob: Object) -> str:
    return f"{name(trainjob)}-runtime-snapshot"


def make_snapshot(trainjob: Object, runtime: Object) -> Object:
    """The ConfigMap with the runtime. Its text is JSON, which is also YAML."""
    metadata = {key: value for key, value in meta(runtime).items() if key in _METADATA}
    kept = {
        "apiVersion": runtime["apiVersion"],
        "kind": runtime["kind"],
        "metadata": metadata,
        "spec": runtime.get("spec") or {},
    }
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.name,
        "metadata": {
            "name": snapshot_name(trainjob),
            "namespace": namespace(trainjob),
            "ownerReferences": [owner_reference(trainjob)],
        },
        "data": {KEY: msgspec.json.format(msgspec.json.encode(kept, order="sorted"), indent=1).decode()},
    }


def read_snapshot(trainjob: Object, snapshot: Object) -> Object:
    """The runtime in a snapshot. Raises BadSnapshot."""
    if not is_controlled_by(snapshot, uid(trainjob)):
        raise BadSnapshot(_FOREIGN)
    text = str((snapshot.get("data") or {}).get(KEY) or "")
    try:
        found: Any = json.loads(text)
    except RecursionError:
        raise BadSnapshot("it is nested too deeply") from None
    except ValueError:  # it is not ours
        found = _read_yaml(text)
    if not isinstance(found, dict) or not isinstance(found.get("spec"), dict):
        raise BadSnapshot("the snapshot holds no runtime")
    return found


def _read_yaml(text: str) -> Any:
    if len(text) > _LONGEST_YAML:
        raise BadSnapshot(f"it is no JSON, and YAML of more than {_LONGEST_YAML:,} characters is not read")
    try:
        return read_yaml(text.encode())
    except UnreadableYaml as error:
        raise BadSnapshot(str(error)) from None
