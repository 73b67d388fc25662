"""The rank of this process, and communication between ranks. This does not import torch itself: only callers with torch objects need it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def load_torch() -> Any:
    """The module torch. Raises ImportError."""
    return import_module("torch")


def rank_and_world_size() -> tuple[int, int]:
    """Rank and world size of torch's process group if there is one, else from the environment (RANK, WORLD_SIZE)."""
    distributed = _process_group()
    if distributed is not None:
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)


def broadcast(value: Any) -> Any:
    """Rank 0's value, on every rank. Raises RuntimeError if there are several ranks and `init_process_group` was not called."""
    _, world_size = rank_and_world_size()
    if world_size == 1:
        return value
    distributed = _process_group()
    if distributed is None:
        raise RuntimeError(
            f"there are {world_size} ranks (WORLD_SIZE), and they cannot agree on a checkpoint yet: call"
            " torch.distributed.init_process_group() before Checkpoint.load()"
        )
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def any_rank(flag: bool) -> bool:
    """Whether the flag is set on any rank. A collective: every rank must call it."""
    distributed = _process_group()
    if distributed is None or distributed.get_world_size() == 1:
        return flag
    torch = load_torch()
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    count = torch.tensor([int(flag)], device=device)
    distributed.all_reduce(count)
    return bool(count.item())


def _process_group() -> Any:
    """The module torch.distributed if its default group is initialised, else None."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed
