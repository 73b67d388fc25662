"""Which rank this process is, and what ranks tell each other. torch is not imported here: a caller that passes its objects has imported it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def load_torch() -> Any:
    """The module torch. Raises ImportError."""
    return import_module("torch")


def rank_and_world_size() -> tuple[int, int]:
    """Of torch's process group where there is one, else what the environment says (RANK, WORLD_SIZE)."""
    distributed = _process_group()
    if distributed is not None:
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)


def broadcast(value: Any) -> Any:
    """What rank 0 has, at every rank. Raises RuntimeError before `init_process_group` where there are several ranks."""
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
    """Whether it is set at any rank. Every rank must ask."""
    distributed = _process_group()
    if distributed is None or distributed.get_world_size() == 1:
        return flag
    torch = load_torch()
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    count = torch.tensor([int(flag)], device=device)
    distributed.all_reduce(count)
    return bool(count.item())


def _process_group() -> Any:
    """torch.distributed, where its default group has been made."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed
