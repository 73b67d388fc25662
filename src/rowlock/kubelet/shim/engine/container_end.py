"""The end of an engine's container: asks its program to end, even one behind a shell, and reads how it ended.

An engine signals its own init, which passes the signal to the first program and ends with it; then the kernel kills all else in
the container. A shell without a handler dies of SIGTERM, and what it waits for would be killed without being asked. So such a
program is stopped first (SIGSTOP). Its children get the signal and the grace in its place; when they have ended, it dies of the
signal before it can begin another command. Standard library only; it needs the right to signal the container's processes.
"""

import contextlib
import os
import signal
from typing import Any

from rowlock.kubelet.files import untrusted
from rowlock.kubelet.shim import process_tree
from rowlock.kubelet.shim.engine_client import Engine, EngineError, connect_engine
from rowlock.kubelet.shim.fact_files import run_fact_path, ticks
from rowlock.kubelet.shim.shim_request import EngineRunSpec, ShimRequest

KILLED_EXIT_CODE = 137


class ContainerStop:
    """Stops one container's processes, from the first signal on."""

    def __init__(self, pid: int, number: int, *, has_init: bool) -> None:
        """`pid` of the container's first process on this machine; `has_init`: whether that is the engine's init, above the program."""
        self._init, self._number = (pid if has_init else 0), number
        below = process_tree.living_children(pid) if has_init else [pid]
        self._program = min(below, key=ticks, default=0)  # orphans of the program are younger
        self._stopped: list[int] = []
        self.asked: list[int] = []
        """Processes that got the signal in place of their stopped parents."""

    def begin(self) -> bool:
        """Takes over if the program would die before its children: `ask_more` must then be called repeatedly. False if it would not, or if
        we may not signal it: then the engine sends the signal."""
        if not self._program or not self._must_be_stopped(self._program):
            return False
        try:
            os.kill(self._program, signal.SIGSTOP)
        except OSError:  # it is another user's, or has just ended
            return False
        self._stopped.append(self._program)
        return True

    def ask_more(self) -> None:
        """Signals new children of the stopped processes, and lets those die that have no children left.

        Programs with a handler come first: what they write through (`python train.py | tee log`) must live while they save."""
        for pid in list(self._stopped):
            below = process_tree.living_children(pid)
            if pid == self._program and self._init:  # orphans
                below += [child for child in process_tree.living_children(self._init) if child != pid]
            if not below:
                self._stopped.remove(pid)
                _signal(pid, self._number)
                _signal(pid, signal.SIGCONT)
            handling = [child for child in below if process_tree.handles_signal(child, self._number)]
            for child in handling or below:
                if child not in self.asked:
                    self.asked.append(child)
                    self._ask(child)

    def _ask(self, pid: int) -> None:
        if self._must_be_stopped(pid):
            self._stopped.append(pid)
            _signal(pid, signal.SIGSTOP)
        else:
            _signal(pid, self._number)

    def _must_be_stopped(self, pid: int) -> bool:
        """Whether it would die of the signal before its children."""
        return process_tree.dies_of_signal(pid, self._number) and bool(process_tree.living_children(pid))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has just ended
        os.kill(pid, number)


# ---------------------------------------------------------------- how it ended


def inspect_state(engine: Engine, name: str) -> dict[str, Any]:
    return dict((engine.request("GET", f"/containers/{name}/json") or {}).get("State") or {})


def collect_exit(request: ShimRequest, engine_spec: EngineRunSpec, code: int) -> dict[str, Any]:
    """In the shim, after its fork has exited: the container's exit fact. Removes the container."""
    engine, name = connect_engine(engine_spec["socket"]), engine_spec["name"]
    exit_fact: dict[str, Any] = {"code": code}
    try:
        state = inspect_state(engine, name)
        if state.get("Running"):
            exit_fact = {"code": KILLED_EXIT_CODE}
        elif state:
            exit_fact["code"] = int(state.get("ExitCode", code))
            if state.get("OOMKilled"):  # code 0: only a child was killed, and the program went on
                told = _oom_message(engine_spec)
                exit_fact |= {"reason": "OOMKilled", "message": told} if exit_fact["code"] else {"overuse": told}
    except EngineError as error:
        if error.status == 404:
            message = f"the container was removed in {engine.name}, and not by rowlock (`{engine.name} rm`): how it ended is unknown"
            exit_fact = {"code": KILLED_EXIT_CODE, "reason": "ContainerStatusUnknown", "message": message}
        if error.status == 0:
            message = f"{error}: it is unknown how the container ended; if it still runs, it is stopped when the engine is back"
            exit_fact = {"code": KILLED_EXIT_CODE, "reason": "ContainerStatusUnknown", "message": message}
    exit_fact |= _start_error_fact(request)
    exit_fact["passed_on"] = (untrusted.read_object(run_fact_path(request, "passed_on")) or {}).get("pids") or []
    exit_fact["signal"] = exit_fact["code"] - 128 if 128 < exit_fact["code"] < 160 else 0
    with contextlib.suppress(EngineError):  # the kubelet removes it later
        engine.request("DELETE", f"/containers/{name}?force=1&v=1")
    return exit_fact


def _start_error_fact(request: ShimRequest) -> dict[str, Any]:
    """The exit fact's fields for a program that could not be started, worded like every other failed start; {} if it was."""
    reason = untrusted.text_of(untrusted.read_object(run_fact_path(request, "refused")) or {}, "why")
    if not reason:
        return {}
    return {"code": 128, "reason": "StartError", "message": exec_error_message(request.argv[0], reason)}


def exec_error_message(program: str, reason: str) -> str:
    """The sentence for a program that cannot be executed, the same as for a process."""
    if "/" not in program and "o such file" in reason:
        reason = "executable file not found in $PATH"
    return f'exec: "{program}": {reason[:1].lower()}{reason[1:]}'


def _oom_message(engine_spec: EngineRunSpec) -> str:
    limit = int(engine_spec["create"]["HostConfig"].get("Memory") or 0)
    return (
        f"it needed more memory than its limit of {limit / (1 << 20):.1f}Mi (killed by {engine_spec['socket']['name']})"
    )
