"""XGBoost: the address of `xgboost.collective`'s tracker, and the number of workers."""

from __future__ import annotations

from rowlock.training.trainjob.model import PORT, TrainPlan, add_port, index_variable, set_variables, variable

RESERVED = ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER")


def apply(plan: TrainPlan) -> None:
    """Set XGBoost's variables, then the trainer's own. There is one worker per GPU, or per node without GPUs."""
    if plan.trainer is None:
        return
    settings = [
        variable("DMLC_TRACKER_URI", plan.address()),
        variable("DMLC_TRACKER_PORT", PORT),
        index_variable("DMLC_TASK_ID"),
        variable("DMLC_NUM_WORKER", plan.nodes * max(1, plan.gpus())),
    ]
    for container in plan.trainer_containers():
        set_variables(container, settings)
        add_port(container)
        set_variables(container, list(plan.trainer.get("env") or ()))
