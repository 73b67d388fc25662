"""Reads and loads the state of objects and of random number generators, as plain data."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

from rowlock.runtime.ranks import load_torch


def state_of(obj: Any) -> Any:
    """The state of an object with `state_dict`, of a torch or NumPy generator, or of a dict. Raises TypeError."""
    if hasattr(obj, "state_dict"):
        return _unwrap(obj).state_dict()
    if hasattr(obj, "bit_generator"):
        return obj.bit_generator.state
    if hasattr(obj, "get_state") and hasattr(obj, "set_state"):
        return obj.get_state()
    if isinstance(obj, dict):
        return dict(obj)
    raise TypeError(
        f"a {type(obj).__name__} has no state that a checkpoint could keep: it wants state_dict() and load_state_dict(),"
        " as modules, optimizers and schedulers have them, or a dict"
    )


def load_state(obj: Any, state: Any) -> None:
    """Load a state from `state_of` into an object."""
    if hasattr(obj, "state_dict"):
        _unwrap(obj).load_state_dict(state)
    elif hasattr(obj, "bit_generator"):
        obj.bit_generator.state = state
    elif hasattr(obj, "set_state"):
        obj.set_state(state)
    else:
        obj.clear()
        obj.update(state)


def is_module(obj: Any) -> bool:
    """Whether `obj` is a torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.nn.Module)


def is_optimizer(obj: Any) -> bool:
    """Whether `obj` is a torch optimizer."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.optim.Optimizer)


def is_replicated(obj: Any) -> bool:
    """Whether `obj` is a module that is equal on all ranks after each step: DistributedDataParallel with broadcast or no buffers."""
    if not is_module(obj):
        return False
    parallel = load_torch().nn.parallel.DistributedDataParallel
    return isinstance(obj, parallel) and (obj.broadcast_buffers or not any(True for _ in obj.buffers()))


def is_sharded(obj: Any) -> bool:
    """Whether `obj` is a module of which this rank holds a shard (FSDP)."""
    if not is_module(obj):
        return False
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in obj.modules()):
        return True
    return any(hasattr(parameter, "to_local") for parameter in obj.parameters())


def _unwrap(obj: Any) -> Any:
    """The module inside DistributedDataParallel, so that its checkpoint also loads with another number of ranks."""
    return obj.module if is_module(obj) and type(obj).__name__ == "DistributedDataParallel" else obj


def copy_to_host(value: Any) -> Any:
    """A deep copy with tensors on the CPU, which later training steps do not change."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: copy_to_host(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_to_host(item) for item in value] if isinstance(value, list) else tuple(map(copy_to_host, value))
    return value


def random_state() -> dict[str, Any]:
    """The state of the global random number generators: Python's, and NumPy's and torch's if they are imported."""
    state: dict[str, Any] = {"python": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = [name, keys.tolist(), int(position), int(has_gauss), float(cached)]
    if (torch := sys.modules.get("torch")) is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def load_random_state(state: Mapping[str, Any]) -> None:
    """Restore the global random number generators from `random_state`."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    if "numpy" in state:
        import importlib

        name, keys, position, has_gauss, cached = state["numpy"]
        numpy = importlib.import_module("numpy")
        numpy.random.set_state((name, numpy.array(keys, dtype="uint32"), position, has_gauss, cached))
    if "torch" in state:
        load_torch().set_rng_state(state["torch"])
    if "cuda" in state:
        load_torch().cuda.set_rng_state_all(state["cuda"])
