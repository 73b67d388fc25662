"""The Python stack of a rank as py-spy dumps it, and whether it is a wait for the other ranks.

When the main thread waits for another thread (a join, an event, a queue), that thread's calls are kept, too, because they tell more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rowlock.diagnosis.rendezvous import JAX_MEETING, MEETINGS, TENSORFLOW_MEETING, XGBOOST_MEETING

_COLLECTIVES = frozenset(
    {
        "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all",
        "all_to_all_single", "barrier", "monitored_barrier", "broadcast", "broadcast_object_list", "gather",
        "gather_object", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "recv",
        "send", "recv_object_list", "send_object_list", "batch_isend_irecv", "init_process_group", "new_group",
        "destroy_process_group", "rendezvous", "allreduce", "Allreduce", "Barrier", "Bcast", "bcast", "Recv", "Send",
    }
)  # fmt: skip
_COLLECTIVE_LIBRARIES = ("torch/distributed/", "mpi4py", "horovod", "jax/", "tensorflow/python/distribute")
_MEETING_CALLS = (
    ("next_rendezvous", "torch/distributed/elastic/", "rendezvous"),
    ("_create_tcp_store", "torch/distributed/elastic/", "rendezvous"),
    ("_assign_worker_ranks", "torch/distributed/elastic/agent/", "rendezvous"),
    ("initialize", "jax/_src/distributed.py", JAX_MEETING),
    ("_initialize_multi_worker", "tensorflow/python/distribute/", TENSORFLOW_MEETING),
    ("__enter__", "xgboost/collective.py", XGBOOST_MEETING),
    ("_wait_batch_p2p", "torch/distributed/pipelining/", "send or recv of a pipeline"),
)
"""Of calls in which ranks find each other, or stages of a pipeline: the function, a part of its file, and what people call it. py-spy may put a class before a name."""
_GROUP_LIBRARY, _CHECKPOINTS = "/torch/distributed/", "/torch/distributed/checkpoint/"
_BACKWARD_FUNCTIONS = ("_engine_run_backward",)
"""DDP averages gradients inside the backward pass: a rank that waits for its peers' gradients is in this call."""
_WAITS_FOR_THREADS = ("/threading.py", "/concurrent/futures/_base.py")
"""Files of the innermost frame of a thread that waits for another one of its process."""
_PROGRAM_FRAMES = ("<module>", "_run_module_as_main", "_bootstrap", "BaseProcess._bootstrap")
"""The outermost frames of a running program: every stack has one of them until the program has ended."""
_MAX_FRAMES, _MAX_WORD, _MAX_THREADS = 2000, 1000, 256
"""The most frames of a stack, characters of a name, and threads that are searched for the one that the main thread waits for."""
NO_CALL = "py-spy saw no call of Python in it"
"""Why a Python process has no stack: its program has not begun, or has ended and a library's shutdown (MPI's) keeps the process."""
NO_INTERPRETER = "Failed to find a python interpreter"
"""py-spy's error for an interpreter that is gone."""
NO_FILE = "No such file or directory"
"""py-spy's error for a process whose files are not there yet, or no longer: it starts or ends."""
_LIBRARY_PATHS = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen ", "<string>")


@dataclass(frozen=True, slots=True)
class Frame:
    """One call: `function` at `file:line`."""

    function: str
    file: str
    line: int

    @property
    def location(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    @property
    def is_library(self) -> bool:
        return any(part in self.file for part in _LIBRARY_PATHS) or self.file.startswith("<")


@dataclass(frozen=True, slots=True)
class Stack:
    """The stack of a rank's main thread, innermost call first; `threads`: the number of its threads."""

    frames: tuple[Frame, ...]
    active: bool = True
    threads: int = 1
    worker: Stack | None = None
    """The thread that the main one probably waits for: one in the program's own code, preferably in a collective."""

    @property
    def position(self) -> tuple[tuple[Frame, ...], ...]:
        """Compares equal in two dumps if the rank has not moved in between. Below a call in which ranks find each other libraries ask
        again and again (torchrun once a second): where they are there tells nothing."""
        return (self.frames[self._meeting_frame :], self.worker.frames if self.worker else ())

    @property
    def _meeting_frame(self) -> int:
        """The index of the innermost call in which ranks find each other; 0 = it is in none."""
        return next((n for n, frame in enumerate(self.frames) if _collective_of(frame) in MEETINGS), 0)

    @property
    def collective(self) -> str:
        """The collective that the main thread is in, such as `all_reduce`; "" when it is in none."""
        return next((call for frame in self.frames if (call := _collective_of(frame))), "")

    @property
    def awaited_collective(self) -> str:
        """Like `collective`, and `backward` for a thread that sleeps there: it waits for its peers' gradients."""
        if self.collective or (self.worker is not None and self.worker.awaited_collective):
            return self.collective or self.worker.awaited_collective  # type: ignore[union-attr] # it is there
        return "backward" if not self.active and any(f.function in _BACKWARD_FUNCTIONS for f in self.frames[:2]) else ""

    @property
    def is_in_group_call(self) -> bool:
        """Whether the user's code has called something in which ranks meet: any part of torch.distributed (RPC, tensors, stores) except
        checkpoints, which also wait for disks, or the backward pass. It shows what a rank waits for only if that rank is at rest."""
        own = next((n for n, frame in enumerate(self.frames) if not frame.is_library), len(self.frames))
        called = self.frames[:own]
        return bool(self.awaited_collective) or any(
            (_GROUP_LIBRARY in frame.file and _CHECKPOINTS not in frame.file) or frame.function in _BACKWARD_FUNCTIONS
            for frame in called
        )

    @property
    def is_over(self) -> bool:
        """Whether the main program has ended and Python waits at exit: for threads, or for a library's shutdown."""
        return bool(self.frames) and all(f.is_library and f.function not in _PROGRAM_FRAMES for f in self.frames)

    @property
    def place(self) -> str:
        """The innermost place in the user's own code: `step (train.py:12)`."""
        user_frame = next((f for f in self.frames if not f.is_library), self.frames[0] if self.frames else None)
        if user_frame is None:
            return "an unknown place"
        return (
            user_frame.location
            if user_frame.function == "<module>"
            else f"{user_frame.function} ({user_frame.location})"
        )

    @property
    def library_call(self) -> str:
        """The innermost frame if it is a library's, else ""."""
        top = self.frames[0] if self.frames else None
        return f"{top.function} ({top.location})" if top is not None and top.is_library else ""

    @property
    def packages(self) -> set[str]:
        """Installed packages whose code is in the stack, by their directories."""
        return {name for f in self.frames if (name := f.file.partition("-packages/")[2].partition("/")[0])}

    def format_frames(self, limit: int = 12) -> list[str]:
        """The `limit` innermost frames as text."""
        return [f"{f.function} ({f.file}:{f.line})" for f in self.frames[:limit]]


def _collective_of(frame: Frame) -> str:
    """The collective, or the call in which ranks find each other, that this frame is; "" for any other."""
    if frame.function in _COLLECTIVES and any(part in frame.file for part in _COLLECTIVE_LIBRARIES):
        return frame.function
    for function, file, meeting in _MEETING_CALLS:
        if f".{frame.function}".endswith(f".{function}") and file in frame.file:
            return meeting
    return ""


def parse_stack(threads: object) -> Stack | None:
    """Parse the JSON of `py-spy dump --json`; None when there is no thread.

    What is in it was read from a program's memory: anything may be in the place of anything."""
    all_threads = [t for t in threads if isinstance(t, dict)] if isinstance(threads, list) else []
    main_thread = next(
        (t for t in all_threads if t.get("thread_name") == "MainThread"), all_threads[0] if all_threads else None
    )
    if main_thread is None:
        return None
    stack = _parse_thread(main_thread)
    worker = None
    if stack.frames and stack.frames[0].file.endswith(_WAITS_FOR_THREADS):
        worker = _choose_worker([_parse_thread(t) for t in all_threads[:_MAX_THREADS] if t is not main_thread])
    return replace(stack, threads=len(all_threads), worker=worker)


def _parse_thread(fields: Mapping[str, Any]) -> Stack:
    found = fields.get("frames")
    frames = [_parse_frame(f) for f in (found if isinstance(found, list) else [])[:_MAX_FRAMES] if isinstance(f, dict)]
    return Stack(_strip_warm_parent(frames), bool(fields.get("active")))


def _choose_worker(others: Sequence[Stack]) -> Stack | None:
    own = [stack for stack in others if any(not frame.is_library for frame in stack.frames)]
    return next((stack for stack in own if stack.awaited_collective), own[0] if own else None)


def _parse_frame(fields: Mapping[str, Any]) -> Frame:
    line = fields.get("line")
    return Frame(
        _clean(fields.get("name")),
        _clean(fields.get("filename")),
        line if type(line) is int and 0 < line < 1 << 31 else 0,
    )


def _clean(value: object) -> str:
    """At most `_MAX_WORD` characters with lone surrogates replaced; "" for anything but a string."""
    return value[:_MAX_WORD].encode(errors="replace").decode() if isinstance(value, str) else ""


def _strip_warm_parent(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames without those of the warm parent that a rank was forked from: they are rowlock's, not the program's."""
    first_parent = next(
        (n for n, f in enumerate(frames) if f.file.endswith("/rowlock/kubelet/warm/warm_parent.py")), len(frames)
    )
    return tuple(frames[:first_parent])
