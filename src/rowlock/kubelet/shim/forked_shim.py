"""Turns a forked process into a shim: forks into the right namespaces, then enters those of the pod.

The fork server, the pod host and warm parents fork shims with it. Standard library only.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rowlock.kubelet.mounts import calls, pod_ipc, pod_mounts, pod_processes
from rowlock.kubelet.shim import container_init
from rowlock.kubelet.shim.shim import Shim
from rowlock.kubelet.shim.shim_request import ShimRequest, namespace_flags


def become_shim(
    request: Mapping[str, Any],
    fds: Mapping[str, int],
    begin: Callable[[ShimRequest], str] = container_init.exec_program,
) -> None:
    """In a process that was forked for it; never returns. `request`: a `ShimRequest` as JSON, which the pod host has checked. `fds`,
    each if there is one: `room`, the pod's mount namespace; `ipc`, its IPC namespace; `network`, its network namespace, which the
    program enters; `processes`, the PID namespace that the pod's containers share; `root`, a mount namespace in which the container's
    root file system was assembled ahead. `begin`, called in the program's own process, becomes the program, or returns why it could not."""
    status = 1
    try:
        os.setsid()
        if (room := fds.get("room", -1)) >= 0:
            pod_mounts.enter_namespace(room)
            os.close(room)
        if (ipc := fds.get("ipc", -1)) >= 0:
            pod_ipc.enter_namespace(ipc)
        if (processes := fds.get("processes", -1)) >= 0:
            pod_processes.enter_namespace(processes)
        Shim(ShimRequest(**request), fds.get("network", -1), begin, fds.get("root", -1)).run()
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def fork_shim(
    request: Mapping[str, Any],
    fds: Mapping[str, int],
    prepare: Callable[[], None],
    begin: Callable[[ShimRequest], str] = container_init.exec_program,
) -> int:
    """Forks the calling, single-threaded process into the namespaces of a request; the child calls `prepare` and becomes the
    shim (`become_shim`). Returns its pid. Raises OSError."""
    pid = calls.fork_into(namespace_flags(request["namespaces"]))
    if pid == 0:
        prepare()
        become_shim(request, fds, begin)
    return pid
