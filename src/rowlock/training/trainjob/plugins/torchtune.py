"""torchtune: `tune run` with the recipe and configuration for the model, nodes and devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.objects import dig
from rowlock.training.trainjob.model import PORT, Container, TrainPlan

COMMAND = ["tune", "run"]
MODELS = {
    "torchtune-llama3.2-1b": "llama3_2/1B",
    "torchtune-llama3.2-3b": "llama3_2/3B",
    "torchtune-llama3.3-70b": "llama3_3/70B",
    "torchtune-qwen2.5-1.5b": "qwen2_5/1.5B",
}
"""Name of a runtime → torchtune's name of the model."""
SEVERAL_NODES = ("llama3_3/70B",)
"""Models with a configuration for more than one node."""
WITHOUT_QLORA = ("qwen2_5/1.5B",)
MANAGED = ("output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir")
"""Settings of the runtime's command that are kept and that jobs must not override."""


def is_wanted(trainer: Mapping[str, Any]) -> bool:
    return trainer.get("command") == COMMAND


def model_of(runtime_name: str) -> str:
    """The model of a runtime; "" if the runtime is not one for torchtune."""
    return MODELS.get(runtime_name, "")


def is_qlora(args: list[str]) -> bool:
    return "model.quantize_base=True" in args and "model.use_dora=True" not in args


def apply(plan: TrainPlan, container: Container) -> None:
    """Set the container's command, with the managed settings of the runtime's. The job's `command` ([tune, run]) is ignored."""
    model = model_of(dig(plan.trainjob, "spec.runtimeRef.name", ""))
    args = [str(arg) for arg in (plan.trainer or {}).get("args") or ()]
    devices = _devices(plan)
    recipe, config = _recipe(args, plan.nodes, devices)
    settings = [
        item for item in container.get("command") or () if str(item).partition("=")[0] in MANAGED and "=" in str(item)
    ]
    endpoint = [f"--rdzv_endpoint={plan.address()}:{PORT}"] if plan.nodes > 1 or devices != 1 else []
    container["command"] = [*COMMAND, *endpoint, recipe, "--config", f"{model}{config}", *settings]


def _devices(plan: TrainPlan) -> int:
    given = (plan.trainer or {}).get("numProcPerNode")
    return int(given) if given is not None else (plan.gpus() or plan.cpus())


def _recipe(args: list[str], nodes: int, devices: int) -> tuple[str, str]:
    is_lora = any(arg.startswith("model.lora_attn_modules") for arg in args)
    kind = "qlora" if is_qlora(args) else "lora" if is_lora else "full"
    recipe = "full_finetune" if kind == "full" else "lora_finetune"
    if nodes > 1:
        return "full_finetune_distributed", "_full_multinode"
    if devices == 1:
        return f"{recipe}_single_device", f"_{kind}_single_device"
    return f"{recipe}_distributed", f"_{kind}"
