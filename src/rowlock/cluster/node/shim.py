"""One shim per container: a forked copy of the pod host that starts the program, keeps its log and its end.

It needs nobody: the server and the pod host may die. Everything it learns is on disk, written atomically:
`start.N` (who runs), `log.N` (`time text` per line, stdout and stderr in order), `exit.N` (how it ended). A byte in
the wake pipe tells a living server to look. SIGTERM asks it to stop the program: what and how fast is in `stop`.
When the program ends, whatever it left running is killed. Standard library only, few imports: it is copied per pod.
"""

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from rowlock.cluster.node import fabric

CHUNK = 65536
_DEFAULT_GRACE = 30.0
_SUBREAPER, _PDEATHSIG = 36, 1


class Stamp:
    """Puts the time before every line; one clock reading per chunk, because output may come at 100 MB/s."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""
        self._begin = True

    def __call__(self, chunk: bytes) -> bytes:
        seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
        if seconds != self._second:
            self._second, self._text = seconds, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        stamp = f"{self._text}.{nanos:09d}Z ".encode()
        ended = chunk.endswith(b"\n")
        body = (chunk[:-1] if ended else chunk).replace(b"\n", b"\n" + stamp)
        begin, self._begin = self._begin, ended
        return (stamp if begin else b"") + body + (b"\n" if ended else b"")


def write_fact(
    path: str, fact: dict[str, Any], *, durable: bool = False, told: Callable[[], None] | None = None
) -> None:
    """A JSON file that is there whole or not at all.

    `told` is called before it is on disk for good: who hears of it makes it durable in another place (the store)."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(fact).encode())
        if durable and told is None:
            os.fsync(fd)
        os.rename(path + ".new", path)
        if told is not None:
            told()
            os.fsync(fd)
    finally:
        os.close(fd)


def ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: with the pid its identity. 0 = gone, or cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def descendants(pid: int) -> list[int]:
    """Every living process below `pid`, parents first."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):  # it ended while we looked
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                    children = [int(child) for child in file.read().split()]
                found += children
                waiting += children
    return found


class Shim:
    """The life of one container's program, from claim to exit fact."""

    def __init__(self, spec: dict[str, Any], netns: int) -> None:
        self._spec = spec
        self._netns = netns
        self._dir, self._number = str(spec["dir"]), int(spec["n"])
        self._stamp = Stamp()
        self._log = self._child = -1
        self._status: int | None = None
        self._started = 0.0
        self._stop_asked = self._stopped = False
        self._kill_at: float | None = None

    def run(self) -> None:
        """Everything, in order. Returns when the exit fact is on disk."""
        self._prepare()
        if not self._claim():
            return
        if failure := self._lay_out():
            self._finish(128, 0, failure, "StartError")
            return
        reading, writing = os.pipe()
        failure = self._launch(writing)
        os.close(writing)
        if failure:
            os.waitpid(self._child, 0)
            self._finish(128, 0, failure, "StartError")
            return
        self._write_start(pid=self._child, ticks=ticks(self._child), started=self._started)
        self._wake("started")
        self._look_after(reading)
        signal_number = os.WTERMSIG(self._status or 0) if os.WIFSIGNALED(self._status or 0) else 0
        code = 128 + signal_number if signal_number else os.WEXITSTATUS(self._status or 0)
        self._finish(code, signal_number, "", "")

    def _path(self, name: str) -> str:
        return f"{self._dir}/{name}.{self._number}"

    def _claim(self) -> bool:
        """The first to create `start.N` runs it: a request that was sent twice starts one program."""
        try:
            fd = os.open(self._path("start"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        os.write(fd, json.dumps(self._identity()).encode())
        os.close(fd)
        self._log = os.open(self._path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return True

    def _lay_out(self) -> str:
        """The container's own copy of its image's files. Returns why it could not be made, "" when it is there."""
        if not self._spec.get("copy"):
            return ""
        image, mine = self._spec["copy"]
        try:
            shutil.rmtree(mine, ignore_errors=True)
            shutil.copytree(image, mine, symlinks=True)
        except (OSError, shutil.Error) as error:
            return f"the image's files could not be copied from {image} to {mine}: {error}"
        return ""

    def _identity(self) -> dict[str, Any]:
        me = os.getpid()
        return {"shim": me, "shim_ticks": ticks(me), "backoff": self._spec.get("backoff", 0)}

    def _write_start(self, **more: Any) -> None:
        write_fact(self._path("start"), {**self._identity(), **more})

    def _prepare(self) -> None:
        fabric.prctl(_SUBREAPER, 1)
        self._waker = os.pipe()
        for end in self._waker:
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)

    def _on_term(self, *_: object) -> None:
        self._stop_asked = True

    def _launch(self, output: int) -> str:
        """Forks and execs. Returns why it could not, "" when the program runs."""
        reading, writing = os.pipe()
        self._started = time.time()
        self._child = os.fork()
        if self._child == 0:
            os.write(writing, self._become(output).encode())
            os._exit(127)
        os.close(writing)
        with open(reading, "rb") as pipe:
            return pipe.read().decode(errors="replace")

    def _become(self, output: int) -> str:
        """In the child: becomes the program, or returns a sentence why not."""
        spec = self._spec
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.setsid()
            fabric.prctl(_PDEATHSIG, signal.SIGKILL)
            if spec.get("network"):
                fabric.enter(spec["network"], self._netns)
            for name, (soft, hard) in (spec.get("rlimits") or {}).items():
                resource.setrlimit(getattr(resource, name), (soft, hard))
            os.umask(0o022)
            os.chdir(spec["cwd"])
            null = os.open("/dev/null", os.O_RDONLY)
            for target, source in ((0, null), (1, output), (2, output)):
                os.dup2(source, target)
            os.execvpe(spec["argv"][0], spec["argv"], spec["env"])
        except (OSError, ValueError, KeyError) as error:
            return _why(error, spec)

    def _look_after(self, output: int) -> None:
        """Copies output until the program and all it started are gone."""
        os.set_blocking(output, False)
        poll = select.poll()
        poll.register(output, select.POLLIN)
        poll.register(self._waker[0], select.POLLIN)
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

    def _patience(self) -> int | None:
        return None if self._kill_at is None else max(1, int((self._kill_at - time.monotonic()) * 1000))

    def _attend(self) -> None:
        """Reaps; carries out a request to stop; kills when the grace is over."""
        self._reap()
        if self._stop_asked:
            self._stop_asked = False
            self._begin_to_stop()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal_tree(signal.SIGKILL)
            self._kill_at = time.monotonic() + 0.1

    def _begin_to_stop(self) -> None:
        request: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            with open(f"{self._dir}/stop") as file:
                request = json.load(file)
        deadline = time.monotonic() + float(request.get("grace", self._spec.get("grace", _DEFAULT_GRACE)))
        self._kill_at = deadline if self._kill_at is None else min(deadline, self._kill_at)
        if not self._stopped:
            self._signal_tree(signal.SIGTERM)
        self._stopped = True

    def _signal_tree(self, number: int) -> None:
        """Everything below us; where there is no /proc, the program's process group."""
        _send(descendants(os.getpid()) or [-self._child], number)

    def _reap(self) -> bool:
        """Collects the dead; True while children are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._status = status

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
        except BlockingIOError:
            return 0
        if chunk:
            with contextlib.suppress(OSError):  # a full disk loses output, not the program
                os.write(self._log, self._stamp(chunk))
        return len(chunk)

    def _finish(self, code: int, number: int, message: str, reason: str) -> None:
        fact: dict[str, Any] = {"code": code, "signal": number, "started": self._started, "finished": time.time()}
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

    def _wake(self, what: str) -> None:
        wake(str(self._spec["wake"]), f"{what} {self._spec['hint']} {self._number}\n")


def wake(path: str, line: str) -> None:
    """Tells the server, if one listens; when not, it will read the facts."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid < 0:
                os.killpg(-pid, number)
            else:
                os.kill(pid, number)


def _why(error: Exception, spec: dict[str, Any]) -> str:
    """The sentence for a program that could not be started."""
    program = spec["argv"][0] if spec.get("argv") else ""
    if isinstance(error, FileNotFoundError) and not os.path.isdir(str(spec.get("cwd"))):
        return f'the working directory "{spec.get("cwd")}" does not exist on this machine'
    if isinstance(error, FileNotFoundError) and os.path.exists(program):
        return f'exec: "{program}": the interpreter named in its first line was not found'
    if isinstance(error, FileNotFoundError):
        where = "no such file or directory" if "/" in program else "executable file not found in $PATH"
        return f'exec: "{program}": {where}'
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f'exec: "{program}": exec format error (a script needs a first line such as #!/bin/sh)'
    return f'exec: "{program}": {error.strerror if isinstance(error, OSError) and error.strerror else error}'


def run_forked(spec: dict[str, Any], netns: int) -> None:
    """In the process that the pod host has just forked; never returns."""
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        Shim(spec, netns).run()
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def keep_open(fd: int) -> None:
    """An inherited descriptor that the program must not see."""
    fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
