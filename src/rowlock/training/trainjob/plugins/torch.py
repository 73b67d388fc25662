"""PyTorch: `torchrun` reads its settings from `PET_*`, so the same command runs on any number of nodes."""

from __future__ import annotations

from typing import Any

from rowlock.training.trainjob.model import (
    PORT,
    Container,
    TrainPlan,
    add_port,
    containers,
    index_variable,
    set_variables,
    variable,
)
from rowlock.training.trainjob.plugins import torchtune

RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")


def apply(plan: TrainPlan) -> None:
    """Set the trainer's own variables, then torchrun's, in the containers `node` and those named by `envInjection`."""
    trainer = plan.trainer
    if trainer is None:
        return
    own, settings = list(trainer.get("env") or ()), _settings(plan)
    for container in plan.trainer_containers():
        set_variables(container, own)
        if torchtune.is_wanted(trainer):
            torchtune.apply(plan, container)
            set_variables(container, settings[:3])
        else:
            set_variables(container, settings)
        add_port(container)
    for container in _find_injected(plan):
        set_variables(container, settings)


def _settings(plan: TrainPlan) -> list[dict[str, Any]]:
    return [
        variable("PET_NNODES", plan.nodes),
        variable("PET_NPROC_PER_NODE", processes(plan)),
        index_variable("PET_NODE_RANK"),
        variable("PET_MASTER_ADDR", plan.address()),
        variable("PET_MASTER_PORT", PORT),
    ]


def processes(plan: TrainPlan) -> str:
    """Processes per node: the job's setting, else one per GPU (`auto`), else one per CPU."""
    given = (plan.trainer or {}).get("numProcPerNode")
    if given is not None:
        return str(given)
    return "auto" if plan.gpus() else str(plan.cpus())


def _find_injected(plan: TrainPlan) -> list[Container]:
    targets = ((plan.policy.get("torch") or {}).get("envInjection") or {}).get("targets") or ()
    return [
        container
        for target in targets
        for job in plan.jobs
        if job.get("name") == target.get("jobName")
        for wanted in target.get("containerNames") or ()
        for container in containers(job, wanted, "initContainers")
    ]
