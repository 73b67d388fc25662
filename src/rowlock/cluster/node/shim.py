"""One shim per container: a forked copy of the pod host that starts the program, keeps its log and its end.

It needs nobody: the server and the pod host may die. Everything it learns is on disk, written atomically:
`start.N` (who runs), `program.N` (its environment, for who comes in later: `entering.py`), `log.N` (`time text` per
line, stdout and stderr in order), `exit.N` (how it ended). A byte in the wake pipe tells a living server to look.
SIGTERM asks it to stop the program: what and how fast is in `stop`.
When the program ends, whatever it left running is killed. Standard library only, few imports: it is copied per pod.

A shim lives as long as its program, and memory that it has once touched is its own for ever. So everything that is done
once is done in the program's own process (`beginning.py`), which gives all that back when it becomes the program.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import time
from _signal import signal as handle  # type: ignore[import-not-found] # signal.signal makes enums: 0.3 MiB a shim
from collections.abc import Callable
from typing import Any

from rowlock.cluster.node import beginning, console, fabric, kin, limits, log_writer, mounts
from rowlock.cluster.node.facts import of_run, write_fact

CHUNK = 65536
_DEFAULT_GRACE = 30.0
_MESSAGE, _MESSAGE_OF_LOG, _LINES_OF_LOG = 4096, 2048, 80
"""The most bytes of a termination message; of one taken from the log, and its lines."""
SUBREAPER = 36
_SIGCHLD, _SIGTERM, _SIG_IGN = int(signal.SIGCHLD), int(signal.SIGTERM), int(signal.SIG_IGN)
_IGNORED = tuple(int(n) for n in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ))


def _nothing(*_: object) -> None:
    """A signal that is there to wake us."""


class Shim:
    """The life of one container's program, from claim to exit fact."""

    def __init__(self, spec: dict[str, Any], netns: int, begin: Callable[[dict[str, Any]], str]) -> None:
        self._spec = spec
        self._beginning = beginning.Beginning(spec, netns, begin)
        self._log: log_writer.LogFile
        self._child = -1
        self._status: int | None = None
        self._stop_asked = self._stopped = False
        self._kill_at: float | None = None
        wanted = spec.get("limits") or {}
        self._measured = int(wanted.get("memory") or 0) if wanted.get("how", "watchdog") == "watchdog" else 0
        self._look_at = 0.0
        self._overuse = ""

    def run(self) -> None:
        """Everything, in order. Returns when the exit fact is on disk."""
        self._prepare()
        ends = console.Ends(self._spec.get("console") or {})
        failure = self._launch(ends)
        ends.let_go()
        if failure == beginning.TAKEN:
            return
        self._log = log_writer.LogFile(self._path("log"), int(self._spec.get("log_limit") or log_writer.LIMIT))
        if failure:
            os.waitpid(self._child, 0)
            self._finish(128, 0, failure, "StartError")
            return
        ends.listen(self._path("in"))
        self._wake("started")
        self._look_after(ends.reading)
        code, signal_number = kin.ending(self._status or 0)
        if self._spec.get("engine"):
            return self._finish_container(code)
        overuse = self._overuse or self._killed_by_kernel()
        self._finish(code, signal_number, overuse if code else "", "OOMKilled" if overuse and code else "")

    def rehearse(self) -> None:
        """What every shim does while it lives, without effect."""
        self._prepare()
        ends = console.Ends({})
        ends.let_go()
        reading, writing = os.pipe()
        os.close(writing)
        self._heard(reading)
        self._log = log_writer.LogFile(os.devnull)
        self._log.write(b"a line\n")
        self._path("log")
        self._wake("started")
        poll = self._polled(ends.reading)
        poll.poll(0)
        self._copy(ends.reading)
        self._attend()
        for fd in (*self._waker, ends.reading):
            os.close(fd)
        self._log.close()

    def _path(self, name: str) -> str:
        return of_run(self._spec, name)

    def _prepare(self) -> None:
        fabric.prctl(SUBREAPER, 1)
        self._waker = os.pipe()
        for end in self._waker:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker[1], warn_on_full_buffer=False)
        handle(_SIGCHLD, _nothing)
        handle(_SIGTERM, self._on_term)
        for ignored in _IGNORED:
            handle(ignored, _SIG_IGN)

    def _on_term(self, *_: object) -> None:
        self._stop_asked = True

    def _launch(self, ends: console.Ends) -> str:
        """Forks the program. Returns why it could not begin, "" when it runs."""
        reading, writing = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            signal.set_wakeup_fd(-1)
            os.write(writing, self._beginning.become(ends).encode())
            os._exit(127)
        os.close(writing)
        return self._heard(reading)

    def _heard(self, reading: int) -> str:
        """What the program's process says until it is the program."""
        failure = b""
        while piece := os.read(reading, CHUNK):
            failure += piece
        os.close(reading)
        begun = beginning.begun(self._spec)
        if not failure and not begun:
            return "it was killed before its program began"
        return failure.decode(errors="replace")

    def _look_after(self, output: int) -> None:
        """Copies output until the program and all it started are gone."""
        poll = self._polled(output)
        while self._status is None:
            for fd, _ in poll.poll(self._patience()):
                if fd == self._waker[0]:
                    os.read(fd, 4096)
                elif self._copy(output) == 0:
                    poll.unregister(output)  # closed by the program; it may run on without
            self._attend()
        self._kill_the_rest()
        while self._copy(output):
            pass

    def _polled(self, output: int) -> "select.poll":
        os.set_blocking(output, False)
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._waker[0], select.POLLIN)
        return poll

    def _patience(self) -> int | None:
        waits = [max(0.001, self._kill_at - time.monotonic())] if self._kill_at is not None else []
        waits += [limits.EVERY] if self._measured else []
        return int(min(waits) * 1000) + 1 if waits else None

    def _attend(self) -> None:
        """Reaps; carries out a request to stop; kills when the grace is over."""
        self._reap()
        if self._stop_asked:
            self._stop_asked = False
            self._begin_to_stop()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal_tree(signal.SIGKILL)
            self._kill_at = time.monotonic() + 0.1
        if self._measured and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + limits.EVERY
            self._measure()

    def _measure(self) -> None:
        """The watchdog: the whole tree is killed when it has more memory than its limit."""
        tree = kin.descendants(os.getpid())
        if limits.resident(tree) <= self._measured:
            return
        used = limits.resident(tree, exact=True)
        if used > self._measured:
            self._signal_tree(signal.SIGKILL)
            self._overuse = _overuse(used, self._measured, "found by the watchdog")

    def _killed_by_kernel(self) -> str:
        """What the control group knows of a lack of memory; "" when there was none."""
        wanted = self._spec.get("limits") or {}
        group = limits.Group.of(beginning.group_name(self._spec), wanted)
        kills, peak = group.kills(), group.peak()
        group.remove()
        return _overuse(peak, int(wanted.get("memory") or 0), f"cgroup {group.version}") if kills else ""

    def _begin_to_stop(self) -> None:
        request: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            with open(f"{self._spec['dir']}/stop") as file:
                request = json.load(file)
        deadline = time.monotonic() + float(request.get("grace", self._spec.get("grace", _DEFAULT_GRACE)))
        self._kill_at = deadline if self._kill_at is None else min(deadline, self._kill_at)
        if not self._stopped:
            self._signal_tree(signal.SIGTERM)
        self._stopped = True

    def _signal_tree(self, number: int) -> None:
        """Everything below us; where there is no /proc, the program's process group."""
        signal_all(kin.descendants(os.getpid()) or [-self._child], number)

    def _reap(self) -> bool:
        """Collects the dead; True while children are left."""
        left, status = kin.reap(self._child)
        self._status = self._status if status is None else status
        return left

    def _kill_the_rest(self) -> None:
        while self._reap():
            self._signal_tree(signal.SIGKILL)
            select.select([self._waker[0]], [], [], 0.05)
            with contextlib.suppress(BlockingIOError):
                os.read(self._waker[0], 4096)

    def _copy(self, output: int) -> int:
        """One chunk from the program to its log; how many bytes, 0 = nothing there (any more)."""
        try:
            chunk = os.read(output, CHUNK)
        except OSError:  # nothing there now; EIO: nobody has the terminal any more
            return 0
        if chunk:
            self._log.write(chunk)
        return len(chunk)

    def _finish_container(self, code: int) -> None:
        """The engine knows how it ended."""
        from rowlock.cluster.node import contained

        fact = contained.ended(self._spec, code)
        self._finish(fact["code"], fact["signal"], fact.get("message", ""), fact.get("reason", ""))

    def _finish(self, code: int, number: int, message: str, reason: str) -> None:
        fact: dict[str, Any] = {"code": code, "signal": number, "started": self._began(), "finished": time.time()}
        message = message or self._last_words(code)
        fact |= {k: v for k, v in (("message", message), ("reason", reason)) if v}
        if self._stopped:
            fact["stopped"] = True
        while True:
            try:
                write_fact(self._path("exit"), fact, told=lambda: self._wake("exited"))
                return
            except FileNotFoundError:
                return  # the pod's directory was removed: nobody wants to know
            except OSError:
                time.sleep(1)  # a full disk: the fact must not be lost, so wait for room

    def _began(self) -> float:
        """When the program began, as its own process wrote it down; 0 when it never came that far."""
        with contextlib.suppress(OSError, ValueError):
            with open(self._path("start")) as file:
                return float(json.load(file).get("started") or 0.0)
        return 0.0

    def _last_words(self, code: int) -> str:
        """What the program left in its message file; else, when it failed and that is asked for, the end of its log."""
        words = _end_of(self._path("message"), _MESSAGE)
        if words or code == 0 or not self._spec.get("message_from_log"):
            return words.decode(errors="replace")
        lines = _end_of(self._path("log"), _MESSAGE_OF_LOG + _LINES_OF_LOG * log_writer.WIDTH).split(b"\n")[
            -_LINES_OF_LOG - 1 :
        ]
        return b"\n".join(line[log_writer.WIDTH :] for line in lines)[-_MESSAGE_OF_LOG:].decode(errors="replace")

    def _wake(self, what: str) -> None:
        wake(str(self._spec["wake"]), f"{what} {self._spec['hint']} {self._spec['n']}\n")


def wake(path: str, line: str) -> None:
    """Tells the server, if one listens; when not, it will read the facts."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


def _overuse(used: int, limit: int, how: str) -> str:
    return f"{limits.amount(used)} of memory used, the limit is {limits.amount(limit)} ({how})"


def _end_of(path: str, size: int) -> bytes:
    """The last bytes of a file; none when it is not there."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except OSError:
        return b""


def signal_all(pids: list[int], number: int) -> None:
    """A signal to processes, or (negative) process groups; who has gone is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid < 0:
                os.killpg(-pid, number)
            else:
                os.kill(pid, number)


def run_forked(
    spec: dict[str, Any], netns: int, room: int = -1, begin: Callable[[dict[str, Any]], str] = beginning.execute
) -> None:
    """In the process that the pod host has just forked; never returns. `room`: the mount namespace of its pod.

    `begin`, called in the program's own process, becomes the program, or returns why it could not."""
    status = 1
    try:
        os.setsid()
        if room >= 0:
            mounts.enter(room)
            os.close(room)
        Shim(spec, netns, begin).run()
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def rehearse(times: int) -> None:
    """In the pod host, once: a shim's steps, without a program.

    What Python remembers of code that runs for the first times (caches of types and of instructions) is written to
    memory. Here that is memory which all shims share; each of them would have 0.2 MiB of it for itself."""
    for _ in range(times):
        Shim({"dir": "/proc/none", "n": 0, "hint": "", "wake": ""}, -1, beginning.execute).rehearse()
    fabric.prctl(SUBREAPER, 0)
    signal.set_wakeup_fd(-1)
    for number in (_SIGCHLD, _SIGTERM):
        handle(number, int(signal.SIG_DFL))


def keep_open(fd: int) -> None:
    """An inherited descriptor that the program must not see."""
    fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
