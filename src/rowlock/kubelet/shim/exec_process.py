"""One more program in a running container (`exec`): a forked copy of the pod host that starts it and waits for it.

It takes the environment, the working directory and the limits of the container's program from `program.N`, and its
namespaces from the program itself, which it watches: nothing here outlives the container. The server is at the other end of
a socket. The first line brings it the program's descriptors (stdin, stdout, stderr, or one terminal), the second how the
program ended. If the server hangs up before that, its client has disconnected, and the program is stopped.
Standard library only.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, cast

from rowlock.kubelet.files import untrusted
from rowlock.kubelet.shim import container_init, netns, process_tree, shim, stdio
from rowlock.kubelet.shim.fact_files import ticks
from rowlock.kubelet.shim.shim_request import UserSpec

HANGUP_GRACE = 2.0
"""Seconds between SIGHUP and SIGKILL for a program whose client has disconnected."""
_NAMESPACES = (("user", 0x10000000), ("net", 0x40000000), ("uts", 0x04000000), ("ipc", 0x08000000), ("mnt", 0x20000))
_PID_NAMESPACE = (("pid", 0x20000000),)


class ContainerGone(Exception):
    """The container does not run (any more)."""


class ExecProcess:
    """One such program, from its fork to its end."""

    def __init__(self, request: dict[str, Any], server: socket.socket) -> None:
        self._server = server
        self._tty = bool(request.get("tty"))
        started = _read_fact(request, "start")
        self._pid, self._ticks = untrusted.integer_of(started, "pid"), untrusted.integer_of(started, "ticks", 1 << 62)
        self._program, self._argv = _read_fact(request, "program"), list(request["argv"])
        self._child = -1
        self._status: int | None = None
        self._kill_at: float | None = None

    def run(self) -> None:
        """Runs the program; returns when no process of it is left. Raises OSError and ContainerGone."""
        self._prepare()
        server_fds, child_fds = self._open_stdio()
        failure = self._launch(child_fds)
        for fd in set(child_fds):
            os.close(fd)
        if failure:
            os.waitpid(self._child, 0)
            return self._send_line({"error": failure}, [])
        self._send_line({"pid": self._child}, server_fds)
        for fd in server_fds:
            os.close(fd)
        self._supervise_child()

    def _prepare(self) -> None:
        netns.prctl(shim.SUBREAPER, 1)
        if not hasattr(os, "pidfd_open"):
            raise ContainerGone("this needs Linux 5.3, which can tell when a container ends")
        self._container = os.pidfd_open(self._pid)
        if ticks(self._pid) != self._ticks:
            raise ContainerGone("the container has ended")
        self._waker = os.pipe()
        for end in self._waker:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _open_stdio(self) -> tuple[list[int], list[int]]:
        """The server's descriptors, and the program's stdin, stdout and stderr."""
        if self._tty:
            master, slave = os.openpty()
            return [master], [slave, slave, slave]
        pipes = [os.pipe() for _ in range(3)]
        return [pipes[0][1], pipes[1][0], pipes[2][0]], [pipes[0][0], pipes[1][1], pipes[2][1]]

    def _launch(self, stdio_fds: list[int]) -> str:
        """Forks and execs. Returns why it could not, "" = the program runs."""
        reading, writing = os.pipe()
        _join_namespaces(self._pid, _PID_NAMESPACE)  # its children are in it, not this process
        self._child = os.fork()
        if self._child == 0:
            os.write(writing, self._exec_program(stdio_fds).encode())
            os._exit(127)
        os.close(writing)
        with open(reading, "rb") as pipe:
            return pipe.read().decode(errors="replace")

    def _exec_program(self, stdio_fds: list[int]) -> str:
        """In the child: becomes the program, or returns a sentence that says why it could not."""
        program, argv = self._program, self._argv
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.setsid()
            if program.get("engine"):
                return self._exec_in_engine(stdio_fds)
            container_init.apply_limits(program.get("rlimits") or {}, program.get("cgroup") or ())
            _join_namespaces(self._pid, _NAMESPACES)
            own_directory, cwd = str(program.get("own_directory") or ""), str(program["cwd"])
            if own_directory:
                container_init.enter_own_directory(own_directory, cwd)
            user, env = cast(UserSpec, program.get("user") or {}), program["env"]
            _dup_onto_stdio(stdio_fds)
            if self._tty:
                os.fchown(0, _owner(user), -1)
                stdio.set_controlling_terminal(0)
                env = {"TERM": "xterm", **dict(env.items() - stdio.BREAKPOINT_WITHOUT_TERMINAL.items())}
            container_init.drop_privileges(user)
            if not own_directory and (failure := container_init.enter_directory(cwd)):
                return failure
            os.execvpe(argv[0], argv, env)
        except (OSError, ValueError, KeyError) as error:
            return container_init.start_error_message(error, argv, str(program.get("cwd")))

    def _exec_in_engine(self, stdio_fds: list[int]) -> str:
        """Has the engine start the program; this process stands in for it."""
        from rowlock.kubelet.shim.engine import engine_proxy  # only where there are containers

        _dup_onto_stdio(stdio_fds)
        if self._tty:
            stdio.set_controlling_terminal(0)
        netns.prctl(1, signal.SIGKILL)
        return engine_proxy.exec_in_container(self._program["engine"], self._argv, terminal=self._tty)

    def _supervise_child(self) -> None:
        poll = select.poll()
        for fd in (self._waker[0], self._server.fileno(), self._container):
            poll.register(fd, select.POLLIN)
        reported = False
        while self._reap_children():
            if self._status is not None and not reported:
                reported = True
                self._report_exit(poll)
            for fd, _ in poll.poll(None if self._kill_at is None else 100):
                if fd == self._waker[0]:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
                elif fd == self._container:
                    poll.unregister(fd)
                    self._kill_at = 0.0
                else:
                    poll.unregister(fd)
                    shim.signal_all(process_tree.descendants(os.getpid()), signal.SIGHUP)
                    self._kill_at = time.monotonic() + HANGUP_GRACE
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                shim.signal_all(process_tree.descendants(os.getpid()), signal.SIGKILL)
        if not reported:
            self._report_exit(poll)

    def _report_exit(self, poll: "select.poll") -> None:
        """Sends how the program ended. What it left running stays, as in any container, until the container ends."""
        self._send_line({"code": process_tree.decode_wait_status(self._status or 0)[0]}, [])
        with contextlib.suppress(KeyError):  # the server has hung up already
            poll.unregister(self._server.fileno())
        self._server.close()

    def _reap_children(self) -> bool:
        """Reaps ended children; True while others are left."""
        children_left, status = process_tree.reap_children(self._child)
        self._status = self._status if status is None else status
        return children_left

    def _send_line(self, message: dict[str, Any], fds: list[int]) -> None:
        send_line(self._server, message, fds)


def _dup_onto_stdio(stdio_fds: list[int]) -> None:
    """Makes these the stdin, stdout and stderr of the calling process."""
    for target, source in enumerate(stdio_fds):
        os.dup2(source, target)


def send_line(server: socket.socket, message: dict[str, Any], fds: list[int]) -> None:
    """Sends one line with descriptors; does nothing if the server is gone."""
    with contextlib.suppress(OSError):
        socket.send_fds(server, [json.dumps(message).encode() + b"\n"], fds)


def _owner(user: UserSpec) -> int:
    """The uid for chown; -1 = unchanged."""
    uid = user.get("uid")
    return -1 if uid is None else uid


def _read_fact(request: dict[str, Any], name: str) -> dict[str, Any]:
    """A fact that the container's shim wrote. Raises ContainerGone if there is none (an older rowlock started it, say)."""
    fact = untrusted.read_object(f"{request['dir']}/{name}.{request['n']}")
    if not fact:
        raise ContainerGone(f"its {name} fact is not there: the pod was started before this version, or has ended")
    return fact


def _join_namespaces(pid: int, namespaces: Sequence[tuple[str, int]]) -> None:
    """Enters the namespaces of a process of this user."""
    namespace_fds = []
    for name, kind in namespaces:
        path = f"/proc/{pid}/ns/{name}"
        if os.path.exists(path) and os.stat(path).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            namespace_fds.append((os.open(path, os.O_RDONLY | os.O_CLOEXEC), kind))
    for fd, kind in namespace_fds:
        netns.join_namespace(fd, kind)


def run_forked(request: dict[str, Any], server: socket.socket) -> None:
    """In the process that the pod host has just forked; never returns."""
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        ExecProcess(request, server).run()
        status = 0
    except (OSError, ContainerGone) as error:
        send_line(server, {"error": f"the container cannot be entered: {error}"}, [])
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)
