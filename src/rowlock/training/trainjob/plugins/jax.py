"""JAX: the environment variables that `jax.distributed.initialize()` reads."""

from __future__ import annotations

from rowlock.training.trainjob.model import PORT, TrainPlan, add_port, index_variable, set_variables, variable


def apply(plan: TrainPlan) -> None:
    """Set JAX's variables, then the trainer's own, which may override them."""
    if plan.trainer is None:
        return
    settings = [
        variable("JAX_NUM_PROCESSES", plan.nodes),
        index_variable("JAX_PROCESS_ID"),
        variable("JAX_COORDINATOR_ADDRESS", f"{plan.address()}:{PORT}"),
    ]
    for container in plan.trainer_containers():
        set_variables(container, settings)
        add_port(container)
        set_variables(container, list(plan.trainer.get("env") or ()))
