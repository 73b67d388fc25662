"""Records what `rowlock verify-resume` compares: fingerprints of all state after each step, if the environment asks for it.

    ROWLOCK_VERIFY_RECORD   the directory for the fingerprints; unset: nothing is recorded
    ROWLOCK_VERIFY_EVERY    steps between two checkpoints
    ROWLOCK_VERIFY_KILL_AT  after this step the process kills itself, to simulate a failed machine
    ROWLOCK_VERIFY_STOP_AT  after this step the program ends with 0

One line of JSON per step and rank: hashes of the model's inputs, scheduler values, random number states, and every tensor.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from rowlock.runtime.states import is_module, is_optimizer, state_of

RECORD, EVERY = "ROWLOCK_VERIFY_RECORD", "ROWLOCK_VERIFY_EVERY"
KILL_AT, STOP_AT = "ROWLOCK_VERIFY_KILL_AT", "ROWLOCK_VERIFY_STOP_AT"


def recorder(
    rank: int, objects: Mapping[str, Any], random_state: Callable[[], Mapping[str, Any]]
) -> FingerprintRecorder | None:
    """The recorder if the environment asks for one, else None."""
    if not (directory := os.environ.get(RECORD)):
        return None
    return FingerprintRecorder(Path(directory), rank, objects, random_state)


class FingerprintRecorder:
    """The fingerprints of one rank."""

    def __init__(
        self, directory: Path, rank: int, objects: Mapping[str, Any], random_state: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._file: TextIO = (directory / f"rank-{rank}.jsonl").open("a")
        self._objects, self._random_state = objects, random_state
        self._kill_at, self._stop_at = int(os.environ.get(KILL_AT) or 0), int(os.environ.get(STOP_AT) or 0)
        self._checkpoint_every = self.every(0)
        self._inputs = hashlib.sha256()
        for obj in objects.values():
            if is_module(obj):
                obj.register_forward_pre_hook(self._note_inputs, with_kwargs=True)

    def every(self, chosen: int) -> int:
        """Steps between two checkpoints: from the environment, else `chosen`."""
        return int(os.environ.get(EVERY) or chosen)

    def note_resume(self, step: int) -> None:
        """Record the state after a checkpoint was loaded."""
        self._write({"resumed": step, **self._fingerprints()})

    def note_step(self, step: int, wait: Callable[[], None]) -> None:
        """Record the state after a step; may end the process. `wait` must return when the last save is on disk."""
        inputs, self._inputs = self._inputs.hexdigest(), hashlib.sha256()
        self._write({"step": step, "inputs": inputs, **self._fingerprints()})
        if step == self._kill_at:
            if step < 2 * self._checkpoint_every:
                wait()  # the only checkpoint must be complete: otherwise the run would restart from the beginning
            os.kill(os.getpid(), signal.SIGKILL)
        if step == self._stop_at:
            wait()
            raise SystemExit(0)

    def _note_inputs(self, module: Any, arguments: Any, keywords: Any) -> None:
        if module.training:
            for _, text in _flatten("", [*arguments, keywords]):
                self._inputs.update(text.encode())

    def _fingerprints(self) -> dict[str, Any]:
        found: dict[str, str] = {}
        for name, state in self._random_state().items():
            found[f"random/{name}"] = hashlib.sha256(repr(list(_flatten("", state))).encode()).hexdigest()
        for name, obj in self._objects.items():
            category = "module" if is_module(obj) else "optimizer" if is_optimizer(obj) else "object"
            found |= {f"{category}/{path}": text for path, text in _flatten(name, state_of(obj))}
        return {"fingerprints": found}

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()  # a SIGKILL may follow


def _flatten(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """The path of every leaf of a state, and a text that differs if any bit of the leaf differs."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        local = value.to_local() if hasattr(value, "to_local") else value
        local = local.detach().cpu().contiguous()
        raw = local.reshape(-1).view(torch.uint8).numpy().tobytes() if local.numel() else b""
        yield path, f"{local.dtype} {tuple(local.shape)} {hashlib.sha256(raw).hexdigest()}"
    elif isinstance(value, Mapping):
        for key in value:
            yield from _flatten(f"{path}.{key}", value[key])
    elif isinstance(value, list | tuple) and not _is_plain(value):
        for index, item in enumerate(value):
            yield from _flatten(f"{path}[{index}]", item)
    else:
        yield path, repr(value)


def _is_plain(value: list[Any] | tuple[Any, ...]) -> bool:
    return all(isinstance(item, int | float | str | bool | None) for item in value)
