"""The objects of a workload, as a tree: `GET /api/v1/workloads/{id}/structure`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.workloads import find_workload
from rowlock.workloads.phase import pod_status
from rowlock.workloads.runai_json import Workload

_VOLUME_KINDS = {
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"), "configMap": ("ConfigMap", "name"),
    "secret": ("Secret", "secretName"),
}  # fmt: skip
"""Field of a volume → the kind of the object that it names, and the field with the name."""
Entry = dict[str, Any]


async def show(call: RestCall) -> Any:
    """GET /workloads/{id}/structure: the job and the objects below it (gang, pods, their containers, and what they mount). Services
    are left out, since the server of a real cluster may not list them. Raises NotFound."""
    call.validate_query()
    return {"objects": list(entries(find_workload(call)))}


def entries(workload: Workload) -> Iterator[Entry]:
    """The objects, each after its owner; `owner` is the owner's `id`, None for the job."""
    job, root = workload.job, objects.uid(workload.job)
    yield _entry(root, None, str(job.get("kind")), objects.name(job), workload.status().phase)
    if workload.group is not None:
        group = workload.group
        yield _entry(objects.uid(group), root, kinds.POD_GROUP.name, objects.name(group), objects.phase(group))
    mounted: dict[str, Entry] = {}
    for pod in workload.pods:
        uid = objects.uid(pod)
        yield _entry(uid, root, "Pod", objects.name(pod), pod_status(pod))
        yield from _container_entries(pod)
        for kind, name in _volume_sources(pod):
            identity = f"{root}/{kind}/{name}"
            mounted.setdefault(identity, _entry(identity, root, kind, name, "mounted"))
    yield from mounted.values()


def _entry(identity: str, owner: str | None, kind: str, name: str, status: str) -> Entry:
    return {"id": identity, "owner": owner, "kind": kind, "name": name, "status": status}


def _container_entries(pod: Object) -> Iterator[Entry]:
    for field, states in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        known = {one.get("name"): one for one in objects.dig(pod, f"status.{states}", [])}
        for container in objects.dig(pod, f"spec.{field}", []):
            name = str(container["name"])
            kind = "Container" if field == "containers" else "Init container"
            status = _container_status((known.get(name) or {}).get("state") or {})
            yield _entry(f"{objects.uid(pod)}/{name}", objects.uid(pod), kind, name, status)


def _container_status(state: Object) -> str:
    """A container's state in a word or two; "" if there is none yet."""
    if "running" in state:
        return "Running"
    if ended := state.get("terminated"):
        return f"exit code {ended.get('exitCode', 0)}"
    return str((state.get("waiting") or {}).get("reason") or "")


def _volume_sources(pod: Object) -> Iterator[tuple[str, str]]:
    """(kind, name) of the objects that the pod's volumes name."""
    for volume in objects.dig(pod, "spec.volumes", []):
        for field, (kind, place) in _VOLUME_KINDS.items():
            if name := (volume.get(field) or {}).get(place):
                yield kind, str(name)
