"""The end of an engine's container: how its program is asked to end, also where a shell stands before it, and how it ended.

An engine signals its own init, which passes the signal to the first program and ends with it; then the kernel ends all else in the
container. A shell without a handler dies of SIGTERM, and would take along what it waits for, unasked. So here such a program
is stopped first (SIGSTOP). What it has started is asked in its place, and gets the grace; when that has ended, the program dies of the
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
    """One container's way to its end, from the first signal on."""

    def __init__(self, pid: int, number: int, *, has_init: bool) -> None:
        """`pid` of the container's first process on this machine; `has_init`: is that the engine's, with the program below it?"""
        self._init, self._number = (pid if has_init else 0), number
        below = process_tree.living_children(pid) if has_init else [pid]
        self._program = min(below, key=ticks, default=0)  # an orphan of the program would have come later
        self._stopped: list[int] = []
        self.asked: list[int] = []
        """Those that were asked in the place of their parents, after the program itself."""

    def begin(self) -> bool:
        """Takes it on where the program would die before what it has started: `ask_more` is to be called again and again from now on.
        False where it need not, or where we may not: then the engine asks."""
        if not self._program or not self._must_be_stopped(self._program):
            return False
        try:
            os.kill(self._program, signal.SIGSTOP)
        except OSError:  # it is another user's, or has just ended
            return False
        self._stopped.append(self._program)
        return True

    def ask_more(self) -> None:
        """Asks what has come below the stopped ones, and lets those die that have nothing below them any more.

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
        """Would it die of the signal, before what it has started?"""
        return process_tree.dies_of_signal(pid, self._number) and bool(process_tree.living_children(pid))


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has just ended
        os.kill(pid, number)


# ---------------------------------------------------------------- how it ended


def inspect_state(engine: Engine, name: str) -> dict[str, Any]:
    return dict((engine.request("GET", f"/containers/{name}/json") or {}).get("State") or {})


def collect_exit(request: ShimRequest, engine_spec: EngineRunSpec, code: int) -> dict[str, Any]:
    """In the shim, when the fork has gone: how the container ended, as the exit fact says it; and it is removed."""
    engine, name = connect_engine(engine_spec["socket"]), engine_spec["name"]
    exit_fact: dict[str, Any] = {"code": code}
    try:
        state = inspect_state(engine, name)
        if state.get("Running"):
            exit_fact = {"code": KILLED_EXIT_CODE}
        elif state:
            exit_fact["code"] = int(state.get("ExitCode", code))
            if state.get("OOMKilled"):  # with code 0 the kernel killed what it had started, and it went on without
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
    with contextlib.suppress(EngineError):  # the kubelet sweeps what is left
        engine.request("DELETE", f"/containers/{name}?force=1&v=1")
    return exit_fact


def _start_error_fact(request: ShimRequest) -> dict[str, Any]:
    """Of a program that is not there: in the words of every other start that failed."""
    reason = untrusted.text_of(untrusted.read_object(run_fact_path(request, "refused")) or {}, "why")
    if not reason:
        return {}
    return {"code": 128, "reason": "StartError", "message": exec_error_message(request.argv[0], reason)}


def exec_error_message(program: str, reason: str) -> str:
    """The sentence that a process would have got."""
    if "/" not in program and "o such file" in reason:
        reason = "executable file not found in $PATH"
    return f'exec: "{program}": {reason[:1].lower()}{reason[1:]}'


def _oom_message(engine_spec: EngineRunSpec) -> str:
    limit = int(engine_spec["create"]["HostConfig"].get("Memory") or 0)
    return (
        f"it needed more memory than its limit of {limit / (1 << 20):.1f}Mi (killed by {engine_spec['socket']['name']})"
    )
