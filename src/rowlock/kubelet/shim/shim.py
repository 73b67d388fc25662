"""One shim per container: a forked copy of the pod host that starts the program and records its log and its exit.

It depends on no other process: the server and the pod host may die. Everything it learns is on disk, written atomically:
`claim.N` (which shim took this run), `start.N` (which processes run), `program.N` (the environment, for `exec_process.py`),
`log.N` (`time text` per line, stdout and stderr in order), `exit.N` (how it ended). A line in the wake pipe makes a running
server read them. SIGTERM asks the shim to stop the program, with the grace that `stop` says. When the program ends, whatever
it left running is killed. Standard library only, few imports: it is copied per pod.

In a PID namespace the shim is process 1, and not the program: the kernel keeps from process 1 every signal that it has no
handler for, so a program without one would not end at SIGTERM, and could not even kill itself. When the shim ends, the kernel
kills what is left in the namespace.

A shim lives as long as its program and never gives back a page of memory that it has touched. So everything that is done
once is done in the program's own process (`container_init.py`), which frees its memory when it becomes the program.
"""

import contextlib
import os
import select
import signal
import time
from _signal import signal as handle  # type: ignore[import-not-found] # signal.signal makes enums: 0.3 MiB a shim
from collections.abc import Callable
from typing import Any

from rowlock.kubelet.files import log_writer, untrusted
from rowlock.kubelet.mounts import pod_ipc
from rowlock.kubelet.shim import cgroups, container_init, netns, process_tree
from rowlock.kubelet.shim import stdio as stdio_streams
from rowlock.kubelet.shim.fact_files import UNCREATED, own_pid, run_fact_path, write_fact
from rowlock.kubelet.shim.shim_request import EngineRunSpec, ShimRequest

CHUNK = 65536
_MAX_MESSAGE_BYTES, _MAX_LOG_MESSAGE_BYTES, _MAX_LOG_MESSAGE_LINES = 4096, 2048, 80
"""Limits: bytes of a termination message; bytes and lines of one taken from the log."""
SUBREAPER = 36
_SIGCHLD, _SIGTERM, _SIG_IGN = int(signal.SIGCHLD), int(signal.SIGTERM), int(signal.SIG_IGN)
_IGNORED_SIGNALS = tuple(int(n) for n in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ))


def _noop_handler(*_: object) -> None:
    """For signals that only interrupt the poll."""


class Shim:
    """The life of one container's program, from claim to exit fact."""

    def __init__(
        self, request: ShimRequest, netns: int, begin: Callable[[ShimRequest], str], spare_root: int = -1
    ) -> None:
        self._request = request
        self._pid, self._is_init = own_pid(), os.getpid() == 1
        self._container_init = container_init.ContainerInit(request, netns, begin, spare_root)
        self._log: log_writer.LogFile
        self._child = -1
        self._exit_status: int | None = None
        self._stop_requested = self._stop_begun = self._used_grace = False
        self._stop_at = self._stop_grace = 0.0
        self._passed_on_to: list[int] = []
        self._kill_at: float | None = None
        is_watched = request.limits.get("how", "watchdog") == "watchdog"
        self._memory_limit = request.limits.get("memory", 0) if is_watched else 0
        self._measure_at = 0.0
        self._overuse_text = ""
        self._reached_pids_limit = False

    def run(self) -> None:
        """Runs the program. Returns when the exit fact is on disk."""
        self._set_up_signals()
        stdio = stdio_streams.Stdio(self._request.console)
        failure = self._fork_program(stdio)
        stdio.close_child_fds()
        if failure == container_init.ALREADY_CLAIMED:
            return
        self._log = log_writer.LogFile(self._fact_path("log"), self._request.log_limit or log_writer.DEFAULT_LOG_LIMIT)
        if failure:
            os.waitpid(self._child, 0)
            if self._request.engine and os.path.exists(self._fact_path(UNCREATED)):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._fact_path("start"))  # withdraw the claim: there was no run
                return self._notify_server("exited")
            self._write_exit(128, 0, failure, "StartError")
            return
        stdio.listen(self._fact_path("in"))
        self._notify_server("started")
        self._supervise_program(stdio.output_fd)
        code, signal_number = process_tree.decode_wait_status(self._exit_status or 0)
        if self._request.engine:
            return self._write_container_exit(self._request.engine, code)
        overuse = self._kernel_oom_message() or self._overuse_text
        if not code:  # only a child was killed for memory, and the program went on
            return self._write_exit(code, signal_number, "", "", overuse)
        self._write_exit(code, signal_number, overuse, "OOMKilled" if overuse else "")

    def prime_caches(self) -> None:
        """Performs what every shim does in its life, without effect."""
        self._set_up_signals()
        stdio = stdio_streams.Stdio({})
        stdio.close_child_fds()
        read_end, write_end = os.pipe()
        os.close(write_end)
        self._read_start_failure(read_end)
        self._log = log_writer.LogFile(os.devnull)
        self._log.write(b"a line\n")
        self._fact_path("log")
        self._notify_server("started")
        poll = self._register_poll(stdio.output_fd)
        poll.poll(0)
        self._copy_output(stdio.output_fd)
        self._handle_due_work()
        for fd in (*self._waker, stdio.output_fd):
            os.close(fd)
        self._log.close()

    def _fact_path(self, name: str) -> str:
        return run_fact_path(self._request, name)

    def _set_up_signals(self) -> None:
        netns.prctl(SUBREAPER, 1)
        self._waker = os.pipe()
        for end in self._waker:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker[1], warn_on_full_buffer=False)
        handle(_SIGCHLD, _noop_handler)
        handle(_SIGTERM, self._on_term)
        for ignored in _IGNORED_SIGNALS:
            handle(ignored, _SIG_IGN)

    def _on_term(self, *_: object) -> None:
        self._stop_requested = True

    def _fork_program(self, stdio: stdio_streams.Stdio) -> str:
        """Forks the program. Returns why it could not begin, "" when it runs."""
        read_end, write_end = os.pipe()
        if "pid" in self._request.namespaces:
            process_tree.skip_pids(process_tree.distant_pid(self._pid))
        if self._request.joined_run and not container_init.join_processes(self._request.joined_run):
            os.close(write_end)
            os.close(read_end)
            return "the container whose processes it is to see does not run any more"
        self._child = os.fork()
        if self._child == 0:
            signal.set_wakeup_fd(-1)
            os.write(write_end, self._container_init.become_program(stdio).encode())
            os._exit(127)
        os.close(write_end)
        return self._read_start_failure(read_end)

    def _read_start_failure(self, read_end: int) -> str:
        """Reads why the program could not begin; "" = it runs."""
        failure = b""
        while piece := os.read(read_end, CHUNK):
            failure += piece
        os.close(read_end)
        has_begun = container_init.commit_start_fact(self._request)
        if not failure and not has_begun:
            return "it was killed before its program started"
        return failure.decode(errors="replace")

    def _supervise_program(self, output: int) -> None:
        """Copies output until the program has ended; then kills what it has left."""
        poll = self._register_poll(output)
        while self._exit_status is None or self._passes_stop_on():
            for fd, _ in poll.poll(self._poll_timeout_ms()):
                if fd == self._waker[0]:
                    os.read(fd, 4096)
                elif self._copy_output(output) == 0:
                    poll.unregister(output)  # closed by the program; it may run on without
            self._handle_due_work()
        self._kill_remaining()
        while self._copy_output(output):
            pass

    def _register_poll(self, output: int) -> "select.poll":
        os.set_blocking(output, False)
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._waker[0], select.POLLIN)
        return poll

    def _poll_timeout_ms(self) -> int | None:
        waits = [max(0.001, self._kill_at - time.monotonic())] if self._kill_at is not None else []
        waits += [cgroups.WATCHDOG_INTERVAL] if self._memory_limit else []
        return int(min(waits) * 1000) + 1 if waits else None

    def _handle_due_work(self) -> None:
        """Reaps children, begins a requested stop, kills when the grace is over, checks memory."""
        self._reap()
        if self._stop_requested:
            self._stop_requested = False
            self._begin_stop()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._used_grace = True
            self._signal_tree(signal.SIGKILL)
            self._kill_at = time.monotonic() + 0.1
        if self._memory_limit and time.monotonic() >= self._measure_at:
            self._measure_at = time.monotonic() + cgroups.WATCHDOG_INTERVAL
            self._check_memory()

    def _check_memory(self) -> None:
        """The watchdog: kills the whole process tree if it uses more memory than its limit."""
        tree = process_tree.descendants(self._pid)
        if cgroups.resident_memory(tree) <= self._memory_limit:
            return
        used = cgroups.resident_memory(tree, exact=True)
        if used > self._memory_limit:
            self._signal_tree(signal.SIGKILL)
            self._overuse_text = _overuse_message(used, self._memory_limit, "found by the watchdog")

    def _kernel_oom_message(self) -> str:
        """The message if the kernel killed for lack of memory, "" if it did not. Removes the control group."""
        resource_limits = self._request.limits
        group = cgroups.Cgroup.by_name(container_init.cgroup_name(self._request), resource_limits)
        kills, peak = group.oom_kills(), group.peak_memory()
        self._reached_pids_limit = bool(resource_limits.get("pids")) and group.refused_pids() > 0
        group.remove()
        return _overuse_message(peak, resource_limits.get("memory", 0), f"cgroup {group.version}") if kills else ""

    def _begin_stop(self) -> None:
        """Asks the program alone to end: its children work on while it saves, as in every container."""
        request = untrusted.read_object(f"{self._request.directory}/stop")
        if request is None and self._is_init:
            return signal_all([self._child], self._request.stop_signal)  # `kill 1` by the container itself
        grace = untrusted.time_of(request or {}, "grace")
        deadline = time.monotonic() + (self._request.grace if grace is None else grace)
        self._kill_at = deadline if self._kill_at is None else min(deadline, self._kill_at)
        if not self._stop_begun and self._exit_status is None:
            signal_all([self._child], self._request.stop_signal)
        self._stop_at = self._stop_at if self._stop_begun else time.monotonic()
        self._stop_grace, self._stop_begun = max(0.0, self._kill_at - self._stop_at), True

    def _passes_stop_on(self) -> bool:
        """Whether to wait on, although the first process has died of the stop signal without passing it on.

        A shell dies of SIGTERM and leaves its children behind. On a cluster it would be process 1 and ignore the signal; the program
        below it would work on, unasked, until it is killed. Here the shell's children, but not their descendants, get the signal and
        the rest of the grace. Programs with a handler for the signal come first: what they write through (`python train.py | tee log`)
        must live while they save."""
        if self._kill_at is None or self._exit_status is None or not self._reap():
            return False
        if process_tree.decode_wait_status(self._exit_status)[1] != self._request.stop_signal:
            return False
        children = process_tree.children(self._pid)
        handling = [pid for pid in children if process_tree.handles_signal(pid, self._request.stop_signal)]
        for pid in handling or children:
            if pid not in self._passed_on_to:
                self._passed_on_to.append(pid)
                signal_all([process_tree.inner_pid(pid) if self._is_init else pid], self._request.stop_signal)
        return True

    def _signal_tree(self, number: int) -> None:
        """Signals everything below the shim; without /proc, the program's process group."""
        if self._is_init:
            return signal_all([-1], number)
        signal_all(process_tree.descendants(self._pid) or [-self._child], number)

    def _reap(self) -> bool:
        """Reaps ended children; True while others are left."""
        has_children, status = process_tree.reap_children(self._child)
        self._exit_status = self._exit_status if status is None else status
        return has_children

    def _kill_remaining(self) -> None:
        while self._reap():
            self._signal_tree(signal.SIGKILL)
            select.select([self._waker[0]], [], [], 0.05)
            with contextlib.suppress(BlockingIOError):
                os.read(self._waker[0], 4096)

    def _copy_output(self, output: int) -> int:
        """Copies one chunk of output to the log. Returns its size; 0 = nothing is there now, or it is closed."""
        try:
            chunk = os.read(output, CHUNK)
        except OSError:  # nothing there now; EIO: the program has closed the terminal
            return 0
        if chunk:
            self._log.write(chunk)
        return len(chunk)

    def _write_container_exit(self, engine: EngineRunSpec, code: int) -> None:
        """Writes the exit fact of a container, as its engine reports it."""
        from rowlock.kubelet.shim.engine import container_end

        fact = container_end.collect_exit(self._request, engine, code)
        self._passed_on_to += fact["passed_on"]
        words = [fact.get(word, "") for word in ("message", "reason", "overuse")]
        self._write_exit(fact["code"], fact["signal"], *words)

    def _write_exit(self, code: int, signal_number: int, message: str, reason: str, helpers_overuse: str = "") -> None:
        fact: dict[str, Any] = {
            "code": code,
            "signal": signal_number,
            "started": self._read_start_time(),
            "finished": time.time(),
        }
        message = message or self._termination_message(code)
        fields = (("message", message), ("reason", reason), ("helpers_overuse", helpers_overuse))
        fact |= {k: v for k, v in fields if v}
        if self._stop_begun:
            took = time.monotonic() - self._stop_at
            fact |= {"stopped": True, "stop_grace": round(self._stop_grace, 3), "stop_took": round(took, 3)}
            engine = self._request.engine
            fact["stop_signal"] = engine["stop_signal"] if engine else self._request.stop_signal
        if self._used_grace:
            fact["used_grace"] = True
        if self._passed_on_to:
            fact["passed_on"] = True
        if self._reached_pids_limit:
            fact["reached_pids_limit"] = True
        while True:
            self._log.write(b"")  # notes lines that a full disk has lost, if there is room by now
            try:
                write_fact(self._fact_path("exit"), fact, on_written=lambda: self._notify_server("exited"))
                return
            except FileNotFoundError:
                return  # the pod's directory was removed: the exit is of no use
            except OSError:
                time.sleep(1)  # a full disk: the fact must not be lost, so wait for room

    def _read_start_time(self) -> float:
        """The program's start in seconds since the epoch, as its own process wrote it; 0 = it did not get that far."""
        return untrusted.time_of(untrusted.read_object(self._fact_path("start")) or {}, "started") or 0.0

    def _termination_message(self, code: int) -> str:
        """The program's message file; if that is empty and it failed, the end of its log, where the pod asks for that."""
        message = untrusted.read_tail(self._fact_path("message"), _MAX_MESSAGE_BYTES)
        if message or code == 0 or not self._request.message_from_log:
            return message.decode(errors="replace")
        lines = untrusted.read_tail(
            self._fact_path("log"), _MAX_LOG_MESSAGE_BYTES + _MAX_LOG_MESSAGE_LINES * log_writer.TIMESTAMP_WIDTH
        ).split(b"\n")[-_MAX_LOG_MESSAGE_LINES - 1 :]
        return b"\n".join(line[log_writer.TIMESTAMP_WIDTH :] for line in lines)[-_MAX_LOG_MESSAGE_BYTES:].decode(
            errors="replace"
        )

    def _notify_server(self, event: str) -> None:
        notify_server(self._request.wake_path, f"{event} {self._request.hint} {self._request.number}\n")


def notify_server(path: str, line: str) -> None:
    """Writes a line to the server's wake pipe; without a server it is lost, as the next one reads the facts."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


def _overuse_message(used: int, limit: int, how: str) -> str:
    return f"{cgroups.format_bytes(used)} of memory used, the limit is {cgroups.format_bytes(limit)} ({how})"


def signal_all(pids: list[int], number: int) -> None:
    """Sends a signal to processes, (negative) process groups, or -1 = all that the caller sees but itself. Ended ones are
    ignored."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid < -1:
                os.killpg(-pid, number)
            else:
                os.kill(pid, number)


def prime_caches(times: int) -> None:
    """In the pod host, once: performs a shim's steps, without a program.

    When code runs for the first times, Python writes caches of types and instructions to memory. Here all shims share that
    memory; otherwise each of them would have 0.2 MiB of its own."""
    for _ in range(times):
        empty: dict[str, Any] = {
            "directory": "/proc/none",
            "number": 0,
            "argv": (),
            "env": {},
            "cwd": "/",
            "hint": "",
            "wake_path": "",
        }
        Shim(ShimRequest(**empty), -1, container_init.exec_program).prime_caches()
        with contextlib.suppress(OSError):  # it may be forbidden, or there are no namespaces
            pod_ipc.enter_namespace(os.open("/proc/self/ns/ipc", os.O_RDONLY | os.O_CLOEXEC))
    netns.prctl(SUBREAPER, 0)
    signal.set_wakeup_fd(-1)
    for number in (_SIGCHLD, _SIGTERM):
        handle(number, int(signal.SIG_DFL))


def set_close_on_exec(fd: int) -> None:
    """Keeps an inherited descriptor from the program."""
    os.set_inheritable(fd, False)
