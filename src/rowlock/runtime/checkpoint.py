"""Checkpoints for an exact resume: a run that was killed continues as if it had not been.

    checkpoint = Checkpoint(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, every=500)
    step = checkpoint.load()                 # 0, or the step of the newest whole checkpoint
    while step < total:
        for batch in sampler.batches(loader):
            ...
            step += 1
            checkpoint.step(step)            # saves when it is due, and when the program is told to end

A checkpoint holds the state of every object that is passed by name, and of the random number generators, for each rank. A
DistributedDataParallel module is written once; an FSDP module in shards, each by its rank. SIGTERM (a preemption, `rowlock stop`) saves
at the next step and ends the program with exit code 143.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rowlock.runtime import recording
from rowlock.runtime.ranks import any_rank, broadcast, load_torch, rank_and_world_size
from rowlock.runtime.snapshot_files import CheckpointError, SnapshotFiles, rank_file
from rowlock.runtime.states import (
    copy_to_host,
    is_module,
    is_optimizer,
    is_replicated,
    is_sharded,
    load_random_state,
    load_state,
    random_state,
    state_of,
)

DIRECTORY_VARIABLE = "ROWLOCK_CHECKPOINT_DIR"
TERMINATED = 143
"""The exit code after SIGTERM: 128 + 15, after which `restartPolicy: ExitCode` restarts the pod."""
_SHARED, _SHARDS = "shared.pt", "shards"


class Checkpoint:
    """The checkpoints of one training run. Create it after `init_process_group` and after the objects are on their devices."""

    def __init__(
        self,
        *,
        directory: str | os.PathLike[str] | None = None,
        every: int = 1000,
        keep: int = 3,
        background: bool = True,
        on_sigterm: bool = True,
        ask_every: int = 10,
        **objects: Any,
    ) -> None:
        """`objects`: objects with a state, by the names under which they are saved. `directory`: shared by all ranks (default: that of
        the job, in ROWLOCK_CHECKPOINT_DIR). `every`: steps between checkpoints; `keep`: how many are kept. `background`: write files
        while training continues. `ask_every`: steps between checks whether any rank was told to end (0 = never). Raises
        ValueError, TypeError for an object without a state, and ImportError without torch, which writes the files."""
        if every < 1 or keep < 1 or ask_every < 0:
            raise ValueError("every and keep are at least 1, and ask_every at least 0")
        if not objects:
            raise ValueError("name what has a state: Checkpoint(model=model, optimizer=optimizer, ...)")
        load_torch()  # importing it first in the writer's thread would expose a partly initialised module to this one
        self._rank, self._world_size = rank_and_world_size()
        root = Path(directory if directory is not None else os.environ.get(DIRECTORY_VARIABLE, "checkpoints"))
        self._files = SnapshotFiles(root, self._rank, self._world_size, keep=keep)
        self._objects = objects
        self._sharded = _sharded_names(objects)
        self._shared = self._shared_names() if self._world_size > 1 else frozenset()
        for name in objects.keys() - self._sharded:
            state_of(objects[name])
        self._recorder = recording.recorder(self._rank, objects, random_state)
        self._every = every if self._recorder is None else self._recorder.every(every)
        self._ask_every, self._background = ask_every, background
        self._writer: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._last_saved = -1
        self._told_to_end = False
        if on_sigterm and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note_sigterm)

    # ------------------------------------------------------------ what a training loop calls

    def load(self) -> int:
        """Load the newest complete checkpoint into all objects and return its step; 0 if there is none. Every rank must call it.
        Raises CheckpointError for one that does not fit these objects."""
        stored = None
        if self._rank == 0:
            self._files.discard_partial()
            stored = self._files.newest(_tell)
        stored = broadcast(stored)
        if stored is None:
            return 0
        if stored.world_size != self._world_size:
            _tell(
                f"the checkpoint of step {stored.step} was saved by {stored.world_size} ranks, and there are {self._world_size}:"
                " models and optimizers go on, random numbers and samplers begin anew; the result is not the same bit by bit"
            )
        self._load(stored.path, same_ranks=stored.world_size == self._world_size)
        self._last_saved = stored.step
        if self._rank == 0:
            _tell(f"training goes on after step {stored.step}, from {stored.path}")
        if self._recorder is not None:
            self._recorder.note_resume(stored.step)
        return int(stored.step)

    def step(self, number: int) -> None:
        """Call after each step; `number`: completed steps. Saves when due, and raises SystemExit when told to end. Raises
        CheckpointError when a checkpoint could not be written."""
        self._raise_failure()
        must_end = self._agree_to_end(number)
        if must_end or number % self._every == 0:
            self.save(number)
        if self._recorder is not None:
            self._recorder.note_step(number, self.wait)
        if must_end:
            self.wait()
            _tell(f"told to end: saved after step {number}")
            raise SystemExit(TERMINATED)

    def save(self, number: int) -> None:
        """Save now, after step `number`. Every rank must call it. Raises CheckpointError."""
        if number == self._last_saved:
            return
        self.wait()
        own = {name: state_of(obj) for name, obj in self._objects.items() if name not in self._shared | self._sharded}
        own = {"random": random_state(), "objects": copy_to_host(own)}
        shared = None
        if self._shared and self._rank == 0:
            shared = copy_to_host({name: state_of(self._objects[name]) for name in self._shared})
        if self._sharded:
            self._save_shards(self._files.partial(number) / _SHARDS)
        self._last_saved = number
        self._writer = threading.Thread(target=self._write, args=(number, own, shared), name="checkpoint")
        self._writer.start()
        if not self._background:
            self.wait()

    def wait(self) -> None:
        """Wait until the last save is on disk. Raises CheckpointError."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        self._raise_failure()

    # ------------------------------------------------------------ writing

    def _write(self, number: int, own: Mapping[str, Any], shared: Mapping[str, Any] | None) -> None:
        """Write this rank's files, and on rank 0 commit the checkpoint. Runs in a thread of its own."""
        torch = load_torch()
        try:
            if shared is not None:
                self._files.write(number, _SHARED, lambda path: torch.save(shared, path))
            self._files.write(number, rank_file(self._rank), lambda path: torch.save(own, path))
            if self._rank == 0:
                self._files.commit(number)
        except Exception as error:  # noqa: BLE001  raised in the training loop by `_raise_failure`
            self._failure = error

    def _save_shards(self, path: Path) -> None:
        """Write this rank's shards; returns when all ranks have written theirs."""
        from importlib import import_module

        import_module("torch.distributed.checkpoint").save(self._shards(), checkpoint_id=path)

    def _shards(self) -> dict[str, Any]:
        from importlib import import_module

        states = import_module("torch.distributed.checkpoint.state_dict")
        model, optimizers = self._sharded_objects()
        model_state, optimizer_state = states.get_state_dict(model, optimizers)
        return {"model": model_state, "optimizer": optimizer_state}

    def _sharded_objects(self) -> tuple[Any, list[Any]]:
        chosen = [self._objects[name] for name in sorted(self._sharded)]
        return next(obj for obj in chosen if is_module(obj)), [obj for obj in chosen if is_optimizer(obj)]

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise CheckpointError(str(failure)) from failure

    # ------------------------------------------------------------ reading

    def _load(self, path: Path, *, same_ranks: bool) -> None:
        own = _read(path / rank_file(self._rank if same_ranks else 0))
        states = dict(own["objects"])
        if (path / _SHARED).exists():
            states |= _read(path / _SHARED)
        wanted = self._objects.keys() - self._sharded
        if missing := sorted(wanted ^ states.keys()):
            raise CheckpointError(
                f"{path} has {', '.join(sorted(states)) or 'nothing'}, and this program names {', '.join(sorted(wanted))}:"
                f" they differ in {', '.join(missing)}. Name the same objects, or use another directory"
            )
        if self._sharded:
            self._load_shards(path / _SHARDS)
        for name in sorted(wanted):
            if same_ranks or is_module(self._objects[name]) or hasattr(self._objects[name], "step"):
                load_state(self._objects[name], states[name])
        if same_ranks:
            load_random_state(own["random"])

    def _load_shards(self, path: Path) -> None:
        from importlib import import_module

        if not path.is_dir():
            raise CheckpointError(f"{path.parent} was saved without FSDP: it cannot be loaded into shards")
        shards = self._shards()
        import_module("torch.distributed.checkpoint").load(shards, checkpoint_id=path)
        model, optimizers = self._sharded_objects()
        import_module("torch.distributed.checkpoint.state_dict").set_state_dict(
            model, optimizers, model_state_dict=shards["model"], optim_state_dict=shards["optimizer"]
        )

    # ------------------------------------------------------------ who writes what, and when to end

    def _shared_names(self) -> frozenset[str]:
        """Names of objects that rank 0 writes for all ranks: replicated modules, and optimizers if all modules are replicated."""
        modules = [obj for obj in self._objects.values() if is_module(obj)]
        names = {name for name, obj in self._objects.items() if is_replicated(obj)}
        if modules and all(is_replicated(module) for module in modules):
            names |= {
                name
                for name, obj in self._objects.items()
                if is_optimizer(obj) and type(obj).__name__ != "ZeroRedundancyOptimizer"
            }
        return frozenset(names)

    def _note_sigterm(self, *_: object) -> None:
        self._told_to_end = True

    def _agree_to_end(self, number: int) -> bool:
        if self._world_size == 1:
            return self._told_to_end
        return bool(self._ask_every) and number % self._ask_every == 0 and any_rank(self._told_to_end)


def _sharded_names(objects: Mapping[str, Any]) -> frozenset[str]:
    """Names of the sharded module, if any, and of all optimizers. Raises ValueError for more than one sharded module."""
    modules = [name for name, obj in objects.items() if is_sharded(obj)]
    if len(modules) > 1:
        raise ValueError(f"one module in shards can be kept, not {len(modules)} ({', '.join(modules)})")
    return (
        frozenset([*modules, *(name for name, obj in objects.items() if is_optimizer(obj))]) if modules else frozenset()
    )


def _read(path: Path) -> dict[str, Any]:
    """Load a file as data only, so that it cannot execute code. Raises CheckpointError."""
    try:
        content: dict[str, Any] = load_torch().load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return content


def _tell(text: str) -> None:
    print(f"checkpoint: {text}", file=sys.stderr, flush=True)
