"""Processes of pods as this machine sees them: a program knows its pid in its own PID namespace only."""

from __future__ import annotations

import contextlib
import os

import psutil

from rowlock.kubelet.shim.fact_files import ticks
from rowlock.kubelet.shim.process_tree import inner_pid


def running(*words: str) -> list[int]:
    """The pids on this machine of programs with exactly this command line."""
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline() == list(words) and process.status() != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return pids


def pid_on_machine(inner: int, began: int, namespace: str) -> int | None:
    """The pid on this machine of the program that calls itself `inner`, began at that clock tick and lives in that PID
    namespace (the target of its /proc/self/ns/pid); None when it has ended."""
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if ticks(pid) == began and inner_pid(pid) == inner and os.readlink(f"/proc/{pid}/ns/pid") == namespace:
                return pid
    return None
