"""A TrainJob and its runtime → its JobSet: patches, resources, number of nodes, framework, the job's own settings.

The order of the steps is Trainer's and matters: what the framework adds depends on the counts, and the job's own settings come last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rowlock.kinds import JOB_SET
from rowlock.objects import Object, copy_json, dig, name, namespace, owner_reference
from rowlock.quantity import canonicalize
from rowlock.training.trainjob.model import (
    DATASET_STEP,
    MODEL_STEP,
    NODE,
    TRAINER_STEP,
    TrainPlan,
    containers,
    pod_spec,
    set_variables,
    step_of,
    variable,
)
from rowlock.training.trainjob.patches import patched_template
from rowlock.training.trainjob.plugins import jax, mpi, torch, torchtune, xgboost
from rowlock.training.trainjob.pod_groups import mark_gang

STORAGE = "STORAGE_URI"
_POLICIES: Mapping[str, Callable[[TrainPlan], None]] = {
    "torch": torch.apply,
    "jax": jax.apply,
    "xgboost": xgboost.apply,
    "mpi": mpi.apply,
}


def make_plan(trainjob: Object, template: Mapping[str, Any], policy: Mapping[str, Any]) -> TrainPlan:
    """The replicated jobs for a TrainJob. `template`: the runtime's, patched; `policy`: the runtime's `mlPolicy`."""
    plan = TrainPlan(trainjob, policy, copy_json((template.get("spec") or {}).get("replicatedJobs") or []))
    if policy:
        _merge_resources(plan)
    _set_counts(plan)
    apply_policy = next((apply for field, apply in _POLICIES.items() if field in policy), _apply_plain)
    apply_policy(plan)
    _apply_trainer(plan)
    _apply_initializers(plan)
    _canonicalize_resources(plan)
    return plan


def make_jobset(trainjob: Object, runtime: Object) -> tuple[Object, TrainPlan]:
    """(the JobSet of a TrainJob, without defaults; its plan)."""
    template = patched_template(trainjob, runtime)
    plan = make_plan(trainjob, template, dig(runtime, "spec.mlPolicy", {}))
    mark_gang(plan, dig(runtime, "spec.podGroupPolicy", {}))
    marks = {k: v for k, v in (template.get("metadata") or {}).items() if k in ("labels", "annotations") and v}
    metadata = {
        "name": name(trainjob),
        "namespace": namespace(trainjob),
        **marks,
        "ownerReferences": [owner_reference(trainjob)],
    }
    spec = {**(template.get("spec") or {}), "replicatedJobs": plan.jobs, "suspend": is_suspended(trainjob)}
    if policies := spec.get("volumeClaimPolicies"):  # without the default it could not be applied again
        spec["volumeClaimPolicies"] = [{"retentionPolicy": {"whenDeleted": "Delete"}, **policy} for policy in policies]
    return {"apiVersion": JOB_SET.api_version, "kind": JOB_SET.name, "metadata": metadata, "spec": spec}, plan


def is_suspended(trainjob: Object) -> bool:
    return bool(dig(trainjob, "spec.suspend", False))


def _merge_resources(plan: TrainPlan) -> None:
    wanted = (plan.trainer or {}).get("resourcesPerNode")
    if not wanted:
        return
    jobs = list(plan.step_jobs(TRAINER_STEP))
    if "mpi" in plan.policy and mpi.runs_launcher(plan):
        jobs += [job for job in plan.jobs if job.get("name") == NODE and job not in jobs]
    for job in jobs:
        for container in containers(job, NODE):
            resources = dict(container.get("resources") or {})
            for part, amounts in wanted.items():
                resources[part] = {**(resources.get(part) or {}), **amounts} if isinstance(amounts, dict) else amounts
            container["resources"] = resources


def _canonicalize_resources(plan: TrainPlan) -> None:
    every = [c for job in plan.jobs for part in ("containers", "initContainers") for c in pod_spec(job).get(part) or ()]
    for container in every:
        if wanted := container.get("resources"):
            container["resources"] = {
                part: {key: canonicalize(amount) for key, amount in amounts.items()}
                if isinstance(amounts, dict)
                else amounts
                for part, amounts in wanted.items()
            }


def _set_counts(plan: TrainPlan) -> None:
    for job in plan.jobs:
        spec = job.setdefault("template", {}).setdefault("spec", {})
        count = spec.get("parallelism") or 1
        if "mpi" in plan.policy:
            if job.get("name") == NODE:
                count = mpi.worker_count(plan)
            elif step_of(job) == TRAINER_STEP:
                count = int(plan.policy.get("numNodes", 1))
        elif step_of(job) == TRAINER_STEP:
            count = plan.nodes
        spec["parallelism"] = spec["completions"] = count


def _apply_plain(plan: TrainPlan) -> None:
    for container in plan.trainer_containers():
        set_variables(container, list((plan.trainer or {}).get("env") or ()))


def _apply_trainer(plan: TrainPlan) -> None:
    trainer = plan.trainer or {}
    replaced = (
        ("image", "args") if "torch" in plan.policy and torchtune.is_wanted(trainer) else ("image", "command", "args")
    )
    for container in plan.trainer_containers():
        for field in replaced:
            if trainer.get(field) is not None:
                container[field] = copy_json(trainer[field])
                if container[field] == []:
                    del container[field]


def _apply_initializers(plan: TrainPlan) -> None:
    for step, field in ((DATASET_STEP, "dataset"), (MODEL_STEP, "model")):
        wanted = dig(plan.trainjob, f"spec.initializer.{field}", None)
        if wanted is None:
            continue
        for job in plan.step_jobs(step):
            for container in containers(job, step):
                if wanted.get("storageUri") is not None:
                    set_variables(container, [variable(STORAGE, wanted["storageUri"])])
                set_variables(container, list(wanted.get("env") or ()))
                if wanted.get("secretRef"):
                    container.setdefault("envFrom", []).append({"secretRef": dict(wanted["secretRef"])})
