"""A warm parent: the interpreter of an image that has imported torch already and forks ranks from itself.

    PYTHON [FLAGS] -c BOOT SRC SOCKET-FD MODULES

`import torch` delays a rank's first line by one to three seconds; a fork takes milliseconds. The pod host starts the parent with
the interpreter, flags and environment that the program would get. The parent imports, and checks that it may be forked: one
thread, no CUDA context. Then it forks a shim (`shim.py`) for each request, and the shim forks the program: instead of exec
it becomes `__main__` here (`become_program`). It runs under the image's Python: standard library only.

A fork copies a page table entry for each page that the process owns. An imported torch has 300 MB, which are 75,000 entries and five
milliseconds, twice for each rank: for the shim and its program. So the memory of a warm parent is put into huge pages: in pages of
2 MiB there are 150. What a fork writes to later is copied in small pages all the same.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.machinery
import io
import json
import os
import random
import runpy
import signal
import socket
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from rowlock.kubelet.warm import command_line, packages, priority

IDLE_TIMEOUT = 900.0
"""Seconds without a request after which a parent exits and frees its memory."""
_CHUNK_BYTES = 1 << 16
_blas_setters: list[Callable[[int], object]] = []
"""Looked up before the first fork, called in each."""


def import_modules(modules: Sequence[str]) -> str:
    """Imports the modules. Returns why this process must not be forked, "" = it may."""
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 (a package may raise anything at import: ranks then start cold, with this reason)
            return f"import {name} failed: {type(error).__name__}: {error}"
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        return f"{threads} threads run after the imports, and a fork would lose all but one"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "the imports opened a CUDA context, which does not survive a fork"
    return ""


def find_blas_setters() -> list[Callable[[int], object]]:
    """The functions that set the thread count of the loaded OpenBLAS libraries, which read the environment only once."""
    try:
        with open("/proc/self/maps") as file:
            paths = {path for line in file if "openblas" in os.path.basename(path := line.rstrip().rpartition(" ")[2])}
    except OSError:
        return []
    names = [f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")]
    libraries = [ctypes.CDLL(path) for path in sorted(paths)]
    return [getattr(library, name) for library in libraries for name in names if hasattr(library, name)]


def serve_forks(connection: socket.socket, fork: Callable[[dict[str, Any], list[int]], int]) -> None:
    """Serves one JSON request a line, with its descriptors; answers with the pid of the shim. Returns when the pod host is gone."""
    connection.settimeout(IDLE_TIMEOUT)
    while True:
        try:
            data, fds, _, _ = socket.recv_fds(connection, _CHUNK_BYTES, 4)
        except TimeoutError:
            return
        while data and not data.endswith(b"\n"):
            data += connection.recv(_CHUNK_BYTES)
        if not data:
            return
        pid = fork(json.loads(data), fds)
        for fd in fds:
            os.close(fd)
        connection.sendall(json.dumps({"shim": pid}).encode() + b"\n")


class WarmRequest(Protocol):
    """The part of a `ShimRequest` that a fork needs."""

    @property
    def argv(self) -> Sequence[str]: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def warm(self) -> Mapping[str, Any] | None: ...


def become_program(request: WarmRequest) -> str:
    """In the program's own process, in place of exec: becomes the program. Returns only if it could not begin, with the reason."""
    warm, env = request.warm or {}, dict(request.env)
    how, target, *rest = warm["program"]
    coerced = {k: v for k, v in os.environ.items() if k == "LC_CTYPE"}  # set by the interpreter itself (PEP 538)
    os.environ.clear()
    os.environ.update(coerced | env)
    sys.argv = [{"file": target, "text": "-c"}.get(how, "-m"), *rest]
    sys.orig_argv = list(warm["words"])
    command_line.show(request.argv[0], sys.orig_argv, env)
    if not getattr(sys.flags, "safe_path", False):  # PYTHONSAFEPATH, since Python 3.11: there is no such entry
        sys.path[0] = {"file": os.path.dirname(os.path.realpath(target)), "module": os.getcwd()}.get(how, "")
    for number, action in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGPIPE, signal.SIG_IGN),
        (signal.SIGXFSZ, signal.SIG_IGN),
    ):
        signal.signal(number, action)
    _reset_interpreter(env)
    return _run_and_exit(lambda: _run_program(how, target))


def _reset_interpreter(env: dict[str, str]) -> None:
    """Resets what a new interpreter would have fresh: modules, import caches, descriptors, randomness and threads."""
    for name in [n for n in sys.modules if n == "rowlock" or n.startswith("rowlock.")]:
        del sys.modules[name]
    sys.path_importer_cache.clear()  # it caches what directories held when the parent looked
    importlib.invalidate_caches()
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the listing's own descriptor
                os.close(int(name))
    _renew_stdio()
    if hasattr(threading.main_thread(), "_set_native_id"):  # a fork leaves it as it was in the parent
        threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    gc.enable()
    time.tzset()
    _reset_randomness()
    cpus = len(os.sched_getaffinity(0))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(_thread_count(env, "OMP_NUM_THREADS") or cpus)
    wanted = (_thread_count(env, f"{name}_NUM_THREADS") for name in ("OPENBLAS", "GOTO", "OMP"))
    blas_threads = min(next(filter(None, wanted), cpus), cpus)
    for set_blas_threads in _blas_setters:
        set_blas_threads(blas_threads)


def _renew_stdio() -> None:
    """Recreates stdin, stdout and stderr as a new interpreter does: it checks once whether each can seek, and the parent's were
    /dev/null, which can."""
    for name, fd, mode in (("stdin", 0, "rb"), ("stdout", 1, "wb"), ("stderr", 2, "wb")):
        old = getattr(sys, name)
        if old is None:
            continue
        buffer = open(fd, mode, 0 if isinstance(old.buffer, io.RawIOBase) else -1, closefd=False)
        raw: Any = getattr(buffer, "raw", buffer)
        raw.name = f"<{name}>"
        new: Any = io.TextIOWrapper(
            buffer,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n",
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )
        new.mode = old.mode
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _reset_randomness() -> None:
    """Reseeds all generators that a new interpreter seeds from the system, and the key that multiprocessing draws at import. CUDA's are
    created with the context, which no parent has. The hash seed cannot be changed: PYTHONHASHSEED is part of a parent's
    key, and without it forks of one parent share the order of sets of strings, on which no program may rely."""
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()
    if process := sys.modules.get("multiprocessing.process"):
        process.current_process().authkey = os.urandom(32)


def _thread_count(env: Mapping[str, str], variable: str) -> int:
    """The thread count that a variable states; 0 = none."""
    text = env.get(variable, "").split(",")[0]
    return int(text) if text.isascii() and text.isdigit() else 0


def _run_program(how: str, target: str) -> None:
    """Runs the program as the interpreter would: `python FILE`, `python -m MODULE`, `python -c TEXT`."""
    if how == "module":
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    if how == "text":
        exec(compile(target, "<string>", "exec"), main.__dict__)
        return
    main.__file__ = target = os.path.join(os.getcwd(), target)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", target)
    with io.open_code(target) as file:
        source = file.read()
    exec(compile(source, target, "exec"), main.__dict__)


def _run_and_exit(run: Callable[[], None]) -> str:
    """Runs the program and ends like an interpreter: joins threads, runs `atexit`, flushes output, exits with the code. Never returns."""
    code, interrupted = 0, False
    try:
        run()
    except SystemExit as error:
        code = _exit_code(error.code)
    except BaseException as error:  # noqa: BLE001 (the program's own failure: reported as by an interpreter)
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        code = 1
        interrupted = isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined] # joins the program's threads, as the interpreter does before atexit
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by the program
            stream.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _exit_code(value: Any) -> int:
    """The exit code of `sys.exit(value)`; prints a value that is not a number."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def main(fork_shim: Callable[..., int], source: str, fd: str, modules: str, wanted_priority: str = "") -> None:
    """Entry point of the process: the function that forks shims (`forked_shim.fork_shim`), the directory of the package, the descriptor of
    the pod host's socket, the modules to import (comma-separated); `wanted_priority` "low": import while nobody else needs the CPU."""
    connection = socket.socket(fileno=int(fd))
    os.set_inheritable(connection.fileno(), False)
    sys.path.remove(source)
    os.setsid()
    os.chdir("/")
    stamps = packages.stamp_packages()  # first, so that changes during the imports are detected
    if wanted_priority == "low":
        priority.lower()
    unfit_reason = import_modules(modules.split(",") if modules else ())
    if wanted_priority == "low":
        priority.raise_again(os.getpid())
    if not unfit_reason:
        _blas_setters.extend(find_blas_setters())
        gc.freeze()
        gc.disable()
        collapse_memory()
    imported = sorted({name.partition(".")[0] for name in sys.modules} - {"__main__", "rowlock"})
    connection.sendall(json.dumps({"unfit": unfit_reason, "modules": imported, "packages": stamps}).encode() + b"\n")
    if unfit_reason:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # shims are reaped by the kernel
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    def fork(message: dict[str, Any], fds: list[int]) -> int:
        def prepare() -> None:
            connection.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

        return fork_shim(message["request"], dict(zip(message["fds"], fds, strict=True)), prepare, become_program)

    serve_forks(connection, fork)


_COLLAPSE = 25
"""MADV_COLLAPSE, since Linux 6.1; older kernels refuse it, without effect."""
_SETTING = "/sys/kernel/mm/transparent_hugepage/enabled"


def collapse_memory() -> bool:
    """Puts this process's own memory into huge pages, as far as the kernel does it. Returns whether any was."""
    if sys.platform != "linux" or not _are_wanted():
        return False
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    answers = [madvise(start, end - start, _COLLAPSE) for start, end in list(_own_regions())]
    return 0 in answers


def _are_wanted() -> bool:
    """Whether the user has not switched huge pages off."""
    try:
        with open(_SETTING) as file:
            return "[never]" not in file.read()
    except OSError:
        return False


def _own_regions() -> Iterator[tuple[int, int]]:
    """Start and end of private memory regions without a file; the kernel collapses the huge pages that each fully covers."""
    with open("/proc/self/maps") as file:
        for line in file:
            bounds, rights, *rest = line.split()
            if rights == "rw-p" and rest[3:] in ([], ["[heap]"]):
                start, _, end = bounds.partition("-")
                yield int(start, 16), int(end, 16)
