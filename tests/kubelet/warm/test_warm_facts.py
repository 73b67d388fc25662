"""What a program can ask about its interpreter, its process and its surroundings is the same after a warm and a cold start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.kubelet.warm.test_warm_start import ENV, Started

from rowlock.kubelet.shim import pod_host
from rowlock.kubelet.warm.warm_parents import PRELOADED_MODULES, WarmParents

FACTS = """
import torch, torch.distributed, torch.nn.parallel, torch.optim, torch.utils.data
import codecs, ctypes, gc, json, locale, logging, multiprocessing, os, platform, resource, select, signal, socket, sys  # torch
import tempfile, threading, time, types, uuid
from multiprocessing import resource_tracker, util
streams = (sys.stdin, sys.stdout, sys.stderr)
facts = {
    "seekable": [s.seekable() for s in streams],
    "stream types": [type(s.buffer).__name__ for s in streams],
    "stream names": [s.name for s in streams], "stream modes": [s.mode for s in streams],
    "encodings": [s.encoding for s in streams], "stream errors": [s.errors for s in streams],
    "line buffering": [s.line_buffering for s in streams], "write through": [s.write_through for s in streams],
    "terminals": [s.isatty() for s in streams], "inner names": [s.buffer.name for s in streams],
    "are originals": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
    "file numbers": [s.fileno() for s in streams],
    "node": platform.node(), "uname": list(platform.uname())[:5], "host name": socket.gethostname(),
    "uuid node": uuid._node, "uuid time": uuid._last_timestamp,
    "temporary directory": tempfile.gettempdir(), "names drawn": tempfile._name_sequence is None,
    "process counter": next(multiprocessing.process._process_counter), "process name": multiprocessing.current_process().name,
    "tracker": [resource_tracker._resource_tracker._fd, resource_tracker._resource_tracker._pid],
    "start method": multiprocessing.get_start_method(allow_none=True), "finalizers": len(util._finalizer_registry),
    "key length": len(multiprocessing.current_process().authkey),
    "thread": [threading.current_thread().name, threading.main_thread().ident == threading.get_ident(), threading.main_thread().native_id == os.getpid()],
    "threads": threading.active_count(),
    "signals": [str(signal.getsignal(n)) for n in range(1, 65) if n not in (32, 33)],
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "alarm": signal.alarm(0), "wake": signal.set_wakeup_fd(-1),
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug()], "recursion": sys.getrecursionlimit(), "switch": sys.getswitchinterval(),
    "argv": sys.argv, "path head": sys.path[0], "flags": str(sys.flags), "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
    "main": [__name__, sys.modules["__main__"].__dict__ is globals()], "dont write": sys.dont_write_bytecode,
    "locale": locale.setlocale(locale.LC_ALL), "loggers": [len(logging.root.handlers), logging.root.level],
    "umask": os.umask(0o022), "directory": os.getcwd(), "priority": os.nice(0),
    "environment": dict(os.environ), "c environment": ctypes.CDLL(None).getenv(b"RANK") is not None, "putenv": os.getenv("HOME"),
    "open files": len(os.listdir("/proc/self/fd")), "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)],
    "dumpable": os.access("/proc/self/environ", os.R_OK), "profile": [sys.getprofile(), sys.gettrace()],
    "default timeout": socket.getdefaulttimeout(), "time zone": time.tzname, "codec": codecs.lookup("utf-8").name,
    "path hooks": len(sys.path_hooks), "meta path": len(sys.meta_path), "cpus": len(os.sched_getaffinity(0)),
}
print(json.dumps(facts, default=str))
"""


@pytest.mark.parametrize("flags", [[], ["-u"]])
def test_sixty_facts_are_those_of_a_cold_start(tmp_path: Path, flags: list[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed: `make test` installs it")
    started = Started(tmp_path, WarmParents(pod_host.WARM_PARENT_BOOT, pod_host._SOURCE, PRELOADED_MODULES))
    (tmp_path / "train.py").write_text(FACTS)
    try:
        warm, cold = (
            json.loads(start(["python", *flags, "train.py"], ENV)[1]) for start in (started.warm, started.cold)
        )
    finally:
        started.close()
    assert len(cold) >= 55
    assert {name: fact for name, fact in warm.items() if fact != cold[name]} == {}
