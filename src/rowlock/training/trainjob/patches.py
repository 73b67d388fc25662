"""`spec.runtimePatches`: changes of a runtime for one TrainJob, merged as in Kubernetes.

Lists of named elements (jobs, containers, volumes, variables, mounts) are merged by their keys, maps key by key; any other list is replaced
as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.objects import Object, dig

_KEYS = {
    "replicatedJobs": "name", "containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
    "volumeMounts": "mountPath", "imagePullSecrets": "name", "schedulingGates": "name",
}  # fmt: skip
"""Name of a merged list → the field that identifies its elements."""


def patched_template(trainjob: Object, runtime: Object) -> dict[str, Any]:
    """The runtime's `spec.template` (a JobSet's metadata and spec) with the job's patches applied. It shares unchanged branches with both,
    so it is for reading."""
    template: dict[str, Any] = dig(runtime, "spec.template", {})
    places = {job.get("name"): place for place, job in enumerate(dig(template, "spec.replicatedJobs", None) or ())}
    for patch in dig(trainjob, "spec.runtimePatches", None) or ():
        wanted = dig(patch, "trainingRuntimeSpec.template", None)
        if wanted:
            template = _merge_maps(template, wanted)
    if jobs := dig(
        template, "spec.replicatedJobs", None
    ):  # a patch that names them in another order does not reorder them
        ordered = sorted(jobs, key=lambda job: places.get(job.get("name"), 0))
        template = {**template, "spec": {**template["spec"], "replicatedJobs": ordered}}
    return template


def _merge_maps(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(old)
    for key, value in new.items():
        before = found.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            found[key] = _merge_maps(before, value)
        elif isinstance(value, list) and key in _KEYS and isinstance(before, list):
            found[key] = _merge_lists(before, value, _KEYS[key])
        else:
            found[key] = value
    return found


def _merge_lists(old: list[Any], new: list[Any], key: str) -> list[Any]:
    """Elements keep the order of the old list; a new one precedes elements that the patch does not name, as in Kubernetes."""
    places = {one.get(key): place for place, one in enumerate(old)}
    named = {
        one.get(key): _merge_maps(old[places[one.get(key)]], one) if one.get(key) in places else one for one in new
    }
    rest = [one for one in old if one.get(key) not in named]
    found = list[Any]()
    for name, element in named.items():
        while rest and places.get(name, -1) > places[rest[0].get(key)]:
            found.append(rest.pop(0))
        found.append(element)
    return found + rest
