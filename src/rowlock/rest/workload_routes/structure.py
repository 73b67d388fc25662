"""The objects of a workload, as a tree: `GET /api/v1/workloads/{id}/structure`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rowlock import kinds, objects
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.workloads import find_workload
from rowlock.workloads.phase import phase_of, pod_status
from rowlock.workloads.runai_json import Workload

_VOLUME_KINDS = {
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"), "configMap": ("ConfigMap", "name"),
    "secret": ("Secret", "secretName"),
}  # fmt: skip
"""Field of a volume → the kind of the object that it names, and the field with the name."""
Entry = dict[str, Any]


async def show(call: RestCall) -> Any:
    """GET /workloads/{id}/structure: the job and the objects below it (the JobSet of a TrainJob, the Jobs of a set, gang, pods, their
    containers, and what they mount). Services are left out, since the server of a real cluster may not list them. Raises NotFound."""
    call.validate_query()
    workload = find_workload(call)
    return {"objects": list(entries(workload, call.context.cache.parts_of(workload.job)))}


def entries(workload: Workload, parts: Sequence[Object] = ()) -> Iterator[Entry]:
    """The objects, each after its owner; `owner` is the owner's `id`, None for the job. `parts`: the JobSet and the Jobs between a set
    and its pods, each after its owner; what is below one that is not given stands below the job."""
    job, root = workload.job, objects.uid(workload.job)
    yield _entry(root, None, str(job.get("kind")), objects.name(job), workload.status().phase)
    if workload.group is not None:
        group = workload.group
        yield _entry(objects.uid(group), root, kinds.POD_GROUP.name, objects.name(group), objects.phase(group))
    shown = {objects.uid(part): part for part in parts}
    pods_below = _pods_below(workload.pods, parts)
    for uid, part in shown.items():
        owner, phase = _owner_uid(part), phase_of(part, pods_below.get(uid, ()), None)
        yield _entry(uid, owner if owner in shown else root, str(part.get("kind")), objects.name(part), phase)
    mounted: dict[str, Entry] = {}
    for pod in workload.pods:
        uid, owner = objects.uid(pod), _owner_uid(pod)
        yield _entry(uid, owner if owner in shown else root, "Pod", objects.name(pod), pod_status(pod))
        yield from _container_entries(pod)
        for kind, name in _volume_sources(pod):
            identity = f"{root}/{kind}/{name}"
            mounted.setdefault(identity, _entry(identity, root, kind, name, "mounted"))
    yield from mounted.values()


def _owner_uid(obj: Object) -> str:
    return str((objects.controller_of(obj) or {}).get("uid") or "")


def _pods_below(pods: Sequence[Object], parts: Sequence[Object]) -> dict[str, list[Object]]:
    """The uid of each part → the pods of it, and of the parts that it owns."""
    owners = {objects.uid(part): _owner_uid(part) for part in parts}
    found: dict[str, list[Object]] = {}
    for pod in pods:
        owner = _owner_uid(pod)
        while owner in owners:
            found.setdefault(owner, []).append(pod)
            owner = owners[owner]
    return found


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
