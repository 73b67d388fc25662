"""One shim per container: a forked copy of the pod host that starts the program, keeps its log and its end.

It needs nobody: the server and the pod host may die. Everything it learns is on disk, written atomically:
`start.N` (who runs), `program.N` (its environment, for who comes in later: `entering.py`), `log.N` (`time text` per
line, stdout and stderr in order), `exit.N` (how it ended). A byte in the wake pipe tells a living server to look.
SIGTERM asks it to stop the program: what and how fast is in `stop`.
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

from rowlock.cluster.node import console, fabric, kin, limits, log_writer, mounts

CHUNK = 65536
_DEFAULT_GRACE = 30.0
_MESSAGE, _MESSAGE_OF_LOG, _LINES_OF_LOG = 4096, 2048, 80
"""The most bytes of a termination message; of one taken from the log, and its lines."""
_NO_NEW_PRIVILEGES = 38
SUBREAPER, PDEATHSIG = 36, 1
INSIDE = ("env", "cwd", "rlimits", "user", "cgroup")
"""What a program that is started beside the container's own gets, too."""


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


class Shim:
    """The life of one container's program, from claim to exit fact."""

    def __init__(self, spec: dict[str, Any], netns: int, begin: Callable[[dict[str, Any]], str]) -> None:
        self._spec = spec
        self._netns = netns
        self._begin = begin
        self._dir, self._number = str(spec["dir"]), int(spec["n"])
        self._log: log_writer.LogFile
        self._child = -1
        self._status: int | None = None
        self._started = 0.0
        self._stop_asked = self._stopped = False
        self._kill_at: float | None = None
        self._group = limits.Group("watchdog")
        self._measured = 0
        self._look_at = 0.0
        self._overuse = ""

    def run(self) -> None:
        """Everything, in order. Returns when the exit fact is on disk."""
        self._prepare()
        if not self._claim():
            return
        if failure := self._lay_out() or self._confine():
            self._finish(128, 0, failure, "StartError")
            return
        write_fact(self._path("program"), {k: v for k, v in self._spec.items() if k in INSIDE})
        ends = console.Ends(self._spec.get("console") or {})
        failure = self._launch(ends)
        ends.let_go()
        if failure:
            os.waitpid(self._child, 0)
            self._finish(128, 0, failure, "StartError")
            return
        ends.listen(self._path("in"))
        self._write_start(pid=self._child, ticks=ticks(self._child), started=self._started)
        self._wake("started")
        self._look_after(ends.reading)
        code, signal_number = kin.ending(self._status or 0)
        overuse = self._overuse or self._killed_by_kernel()
        self._finish(code, signal_number, overuse if code else "", "OOMKilled" if overuse and code else "")

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
        if self._spec.get("message_path"):
            os.close(os.open(self._path("message"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC))
            os.chmod(self._path("message"), 0o666)
        self._log = log_writer.LogFile(self._path("log"), int(self._spec.get("log_limit") or log_writer.LIMIT))
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

    def _confine(self) -> str:
        """Makes the control group that keeps the container's limits. Returns why it could not be made."""
        wanted = self._spec.get("limits") or {}
        name = f"{str(self._spec['hint']).replace('/', '.')}.{self._number}"
        try:
            self._group = limits.Group.make(name, wanted) if wanted else self._group
        except OSError as error:
            return f"the limits could not be set ({error.filename or 'control group'}: {error.strerror}): {wanted}"
        self._spec["cgroup"] = self._group.doors
        self._measured = int(wanted.get("memory") or 0) if self._group.version == "watchdog" else 0
        return ""

    def _identity(self) -> dict[str, Any]:
        me = os.getpid()
        return {"shim": me, "shim_ticks": ticks(me), "backoff": self._spec.get("backoff", 0)}

    def _write_start(self, **more: Any) -> None:
        write_fact(self._path("start"), {**self._identity(), **more})

    def _prepare(self) -> None:
        fabric.prctl(SUBREAPER, 1)
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

    def _launch(self, ends: console.Ends) -> str:
        """Forks and execs. Returns why it could not, "" when the program runs."""
        reading, writing = os.pipe()
        self._started = time.time()
        self._child = os.fork()
        if self._child == 0:
            os.write(writing, self._become(ends).encode())
            os._exit(127)
        os.close(writing)
        with open(reading, "rb") as pipe:
            return pipe.read().decode(errors="replace")

    def _become(self, ends: console.Ends) -> str:
        """In the child: becomes the program, or returns a sentence why not."""
        spec = self._spec
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.setsid()
            if spec.get("network"):
                fabric.enter(spec["network"], self._netns)
            self._mount()
            limit(spec)
            os.chdir(spec["cwd"])
            ends.take((spec.get("user") or {}).get("uid"))
            become(spec.get("user") or {})
            return self._begin(spec)
        except (OSError, ValueError, KeyError) as error:
            return why_not(error, spec)
        except mounts.Unmountable as error:
            return str(error)

    def _mount(self) -> None:
        """The container's own view of the file system, where it needs one."""
        spec, wanted = self._spec, list(self._spec.get("mounts") or ())
        if path := spec.get("message_path"):
            wanted.append({"source": self._path("message"), "target": path, "volume": "termination message"})
        if wanted:
            if not spec.get("network"):
                mounts.isolate()
            mounts.arrange(wanted, self._dir, spec["copy"][1:] if spec.get("copy") else ())

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
        kills, peak = self._group.kills(), self._group.peak()
        self._group.remove()
        limit = int((self._spec.get("limits") or {}).get("memory") or 0)
        return _overuse(peak, limit, f"cgroup {self._group.version}") if kills else ""

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

    def _finish(self, code: int, number: int, message: str, reason: str) -> None:
        fact: dict[str, Any] = {"code": code, "signal": number, "started": self._started, "finished": time.time()}
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
        wake(str(self._spec["wake"]), f"{what} {self._spec['hint']} {self._number}\n")


def wake(path: str, line: str) -> None:
    """Tells the server, if one listens; when not, it will read the facts."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)


def limit(spec: dict[str, Any]) -> None:
    """In a program's own process, before exec: its resource limits, its control group and its umask."""
    for name, (soft, hard) in (spec.get("rlimits") or {}).items():
        resource.setrlimit(getattr(resource, name), (soft, hard))
    limits.join(spec.get("cgroup") or ())
    os.umask(0o022)


def _overuse(used: int, limit: int, how: str) -> str:
    return f"{limits.amount(used)} of memory used, the limit is {limits.amount(limit)} ({how})"


def become(user: dict[str, Any]) -> None:
    """In a program's own process, last before exec: its user and groups; it dies with its parent (which a change of
    user would undo)."""
    if user.get("groups") is not None:
        os.setgroups(user["groups"])
    if user.get("gid") is not None:
        os.setgid(user["gid"])
    if user.get("uid") is not None:
        os.setuid(user["uid"])
    fabric.prctl(PDEATHSIG, signal.SIGKILL)
    if user.get("no_new_privileges"):
        fabric.prctl(_NO_NEW_PRIVILEGES, 1)


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


def why_not(error: Exception, spec: dict[str, Any]) -> str:
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


def execute(spec: dict[str, Any]) -> str:
    """A program's beginning: exec. Returns only by raising."""
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


def run_forked(
    spec: dict[str, Any], netns: int, room: int = -1, begin: Callable[[dict[str, Any]], str] = execute
) -> None:
    """In the process that the pod host has just forked; never returns. `room`: the mount namespace of its pod.

    `begin`, called in the program's own process, becomes the program, or returns why it could not."""
    status = 1
    try:
        os.setsid()
        if room >= 0:
            mounts.enter(room)
            os.close(room)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        Shim(spec, netns, begin).run()
        status = 0
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def keep_open(fd: int) -> None:
    """An inherited descriptor that the program must not see."""
    fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
