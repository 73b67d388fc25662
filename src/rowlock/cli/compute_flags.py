"""Turns flags such as `-g 1`, `-g 0.5`, `--cpu` and `--memory` into the compute part of a request."""

from __future__ import annotations

from typing import Any

from rowlock.cli.grammar import CommandError, CommandLine


def gpu_request(gpus: float | None, flag: str = "--gpu") -> dict[str, Any]:
    """The GPU part of a request: a whole number asks for devices, a fraction below 1 for a share of one device."""
    if gpus is None or gpus == 0:
        return {}
    if gpus < 0:
        raise CommandError(f"{flag} must be no less than 0, but is {gpus:g}")
    if gpus == int(gpus):
        return {"gpuDevicesRequest": int(gpus)}
    if gpus > 1:
        raise CommandError(
            f"{flag} {gpus:g}: a pod can have whole GPUs or a share of one, not both. "
            f"Ask for {int(gpus)} or {int(gpus) + 1}, or for a share below 1."
        )
    return {"gpuDevicesRequest": 1, "gpuRequestType": "portion", "gpuPortionRequest": gpus}


def compute_request(line: CommandLine) -> dict[str, Any]:
    """The `compute` object of a request, from --gpu, --cpu, --memory and --memory-limit."""
    request = gpu_request(line.gpu)
    if line.cpu is not None:
        request["cpuCoreRequest"] = line.cpu
    if line.memory:
        request["cpuMemoryRequest"] = normalize_quantity(line.memory)
    if line.memory_limit:
        request["cpuMemoryLimit"] = normalize_quantity(line.memory_limit)
    return request


def normalize_quantity(text: str) -> str:
    """A quantity without the trailing b that Run:ai's first generation allows (`0.5Gb`)."""
    return text[:-1] if text[-1:] in "bB" and text[:-1][-1:].isalpha() else text
