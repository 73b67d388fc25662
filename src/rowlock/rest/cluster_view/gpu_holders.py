"""The holders of the GPUs that a workload or a pod waits for, as far as the caller may see them: part of `/explain` and `/why`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rowlock import objects
from rowlock.rest.cluster_view.allocations import bound_pods
from rowlock.rest.informers import InformerCache
from rowlock.workloads import compute, runai_json
from rowlock.workloads.phase import TERMINAL
from rowlock.workloads.runai_json import Workload

_NAMED = 4
_END = {"Completed": "has completed", "Failed": "has failed"}


@dataclass(slots=True)
class _Holder:
    """A workload, or a pod without one, with the GPUs that its pods hold."""

    name: str
    project: str
    identity: str
    phase: str
    gpus: Decimal = Decimal(0)
    pods: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "projectName": self.project, "workloadId": self.identity, "workloadName": self.name, "phase": self.phase,
            "gpus": float(self.gpus), "pods": self.pods,
        }  # fmt: skip


async def holders_for(cache: InformerCache, waiting: Workload) -> tuple[list[dict[str, Any]], str]:
    """As `gpu_holders`; both are empty if the workload does not wait for GPUs."""
    templates = [template for template, _ in runai_json.pod_templates(waiting.job)]
    if waiting.status().phase not in ("Pending", "Creating") or not want_gpus(templates):
        return [], ""
    return await gpu_holders(cache, waiting.project.name)


def want_gpus(templates: Iterable[Any]) -> bool:
    """Whether any of these pods or pod templates requests GPUs, or a share of one."""
    return any(compute.pod_gpus(template, card_memory=1) for template in templates)


async def gpu_holders(cache: InformerCache, own_project: str) -> tuple[list[dict[str, Any]], str]:
    """The workloads that hold GPUs (ended ones first, then by GPUs), and a sentence about them for readers of a project."""
    found: dict[str, _Holder] = {}
    async for node, pod in bound_pods(cache):
        gpus = compute.pod_gpus(pod, cache.card_memory(node))
        if gpus and (holder := _holder_of(pod, cache, found)) is not None:
            holder.gpus, holder.pods = holder.gpus + gpus, holder.pods + 1
    holders = sorted(found.values(), key=lambda one: (one.phase not in TERMINAL, -one.gpus, one.project, one.name))
    return [one.to_json() for one in holders], holders_sentence(holders, own_project)


def _holder_of(pod: Any, cache: InformerCache, found: dict[str, _Holder]) -> _Holder | None:
    uid = cache.owner_uid(pod)
    if uid in found:
        return found[uid]
    project = cache.projects().get(objects.namespace(pod))
    job = cache.job(uid) if uid else None
    if project is None:
        return None
    if job is None:
        uid, holder = objects.uid(pod), _Holder(objects.name(pod), project.name, "", "")
    else:
        holder = _Holder(objects.name(job), project.name, runai_json.workload_id(job), cache.phase(uid))
    return found.setdefault(uid, holder)


def holders_sentence(holders: list[_Holder], own_project: str) -> str:
    """Which workloads hold how many GPUs, with a command to free those of each ended job; "" without holders."""
    over = [one for one in holders if one.phase in TERMINAL]
    others = [one for one in holders if one.phase not in TERMINAL]
    parts = [
        f"{_name_of(one, own_project)} {_END[one.phase]}, but {'1 pod' if one.pods == 1 else f'{one.pods} pods'} of it still"
        f" {'holds' if one.pods == 1 else 'hold'} {_gpus(one.gpus)}: `rowlock delete {one.name}{_flag(one, own_project)}` frees"
        f" {'it' if one.gpus == 1 else 'them'}."
        for one in over[:_NAMED]
    ]
    if others:
        listed = [f"{_name_of(one, own_project)} ({_gpus(one.gpus)})" for one in others[:_NAMED]]
        more = others[_NAMED:]
        listed += [f"{len(more)} more ({_gpus(sum((one.gpus for one in more), Decimal(0)))})"] if more else []
        parts.append(
            f"{'Other GPUs' if over else 'GPUs'} are held by {', '.join(listed[:-1])}{' and ' if len(listed) > 1 else ''}{listed[-1]}."
        )
    return " ".join(parts)


def _name_of(one: _Holder, own_project: str) -> str:
    name = one.name if one.identity else f"pod {one.name}"
    return name if one.project == own_project else f"{name} of project {one.project}"


def _flag(one: _Holder, own_project: str) -> str:
    return "" if one.project == own_project else f" -p {one.project}"


def _gpus(amount: Decimal) -> str:
    return f"{amount.normalize():f} GPU{'' if amount == 1 else 's'}"
