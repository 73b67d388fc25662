"""The pod host's side of warm starts: one parent (`warm_parent.py`) per environment that is in use.

The first program of an environment starts cold; when it ends, or after some seconds, its parent is started. Until the parent
has reported that it may be forked, and whenever it does not answer, programs start cold. Standard library only.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rowlock.kubelet.warm import packages, priority

PRELOADED_MODULES = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim",
    "torch.utils.data",
    "torch._dynamo",  # the first optimizer step imports it: half of a short script's start
)
COLD_RUN_SECONDS = 20.0
"""Seconds that a first program runs before its environment's parent is started, so that they do not compete for the CPU."""
MAX_PARENTS = 4
"""Most parents at a time: each holds the memory of an imported torch. The least recently used one is killed first."""
MAX_UNUSED_PARENTS = 8
"""After this many parents in a row that were never forked, only an environment that was seen twice gets one."""
_ANSWER_TIMEOUT = 5.0
_IMPORTED_BY_SITE = ("sitecustomize", "usercustomize")
"""Modules that Python imports at its start if they exist: a parent lacks one that was added after its start."""

_MODULE_SUFFIXES = (".py", ".pyc", ".so")
"""Suffixes of files that Python imports; `random.pt` and `logging.yaml` beside a program shadow nothing."""


class _Parent:
    def __init__(self, pid: int, connection: socket.socket, *, is_ahead: bool) -> None:
        self.pid, self.connection = pid, connection
        self.is_ahead = is_ahead
        """Whether it was made before a program asked for it: then it imports with the lowest priority."""
        self.modules: frozenset[str] | None = None
        """The modules that it has imported; None until it has reported them."""
        self.packages: dict[str, int] = {}
        """The stamps of its packages, as it took them (`packages.stamp_packages`)."""

    def hurry(self) -> None:
        """Gives it the priority of others, if it still has the lowest: on a busy machine its imports would take minutes."""
        if self.is_ahead and self.modules is None:
            priority.raise_again(self.pid)
        self.is_ahead = False

    def find_shadowed_path(self, directory: str) -> str:
        """A file in `directory`, early in a program's path, that shadows a module which the parent has already imported; "" = none."""
        names: list[str] = []
        with contextlib.suppress(OSError):  # missing, as Python allows; or a zip file, which is not searched
            names = sorted(os.listdir(directory))
        for name in names:
            module = name.partition(".")[0]
            is_imported = module in (self.modules or ()) or module in _IMPORTED_BY_SITE
            if is_imported and (name.endswith(_MODULE_SUFFIXES) or os.path.exists(f"{directory}/{name}/__init__.py")):
                return os.path.join(directory, name)
        return ""


class WarmParents:
    """Parents by their key. `boot` is the program text that starts one: it calls `warm_parent.main`."""

    def __init__(self, boot: str, source: str, imports: Sequence[str] = PRELOADED_MODULES) -> None:
        self._boot, self._source, self._imports = boot, source, ",".join(imports)
        self._parents: dict[str, _Parent] = {}
        self._cold_runs: dict[int, tuple[float, Mapping[str, Any]]] = {}
        self._unfit: dict[str, tuple[str, dict[str, int]]] = {}
        """Key → why the environment can have no parent, and the package stamps for which that holds."""
        self._unused_parents = 0
        self._keys_seen_once: set[str] = set()

    def fork(self, request: Mapping[str, Any], fds: Mapping[str, int]) -> tuple[int, str]:
        """Forks a shim from the parent of the program's environment. Returns its pid, or (0, why) to start cold; why is "" if the parent is
        not ready yet. `request`: the `ShimRequest` as JSON."""
        warm_spec = request["warm"]
        parent = self._parents.get(warm_spec["key"])
        if parent is None or not self._is_ready(warm_spec["key"], parent):
            return 0, self._unfit_reason(warm_spec["key"])
        if packages.have_changed(parent.packages):
            self._kill_parent(warm_spec["key"])
            return 0, "packages of its Python have been installed or removed since the last start"
        for directory in (warm_spec["first"], *warm_spec["python_path"]):
            if shadowed_path := parent.find_shadowed_path(directory):
                return 0, f"{shadowed_path} has the name of a module that is imported before it"
        fds = {name: fd for name, fd in fds.items() if fd >= 0}
        message = {"request": request, "fds": list(fds)}
        parent.connection.settimeout(_ANSWER_TIMEOUT)
        try:
            socket.send_fds(parent.connection, [json.dumps(message).encode() + b"\n"], list(fds.values()))
            shim = int(_read_answer(parent.connection)["shim"])
        except (OSError, ValueError, KeyError):
            self._kill_parent(warm_spec["key"])  # dead, or stuck; a run that it did begin has claimed its number
            return 0, ""
        self._unused_parents = 0
        self._parents[warm_spec["key"]] = self._parents.pop(warm_spec["key"])  # most recently used last
        return shim, ""

    def add_cold_run(self, request: Mapping[str, Any], pid: int) -> None:
        """Notes that a program runs cold that could have been warm: its environment is in use."""
        key = request["warm"]["key"]
        parent = self._parents.get(key)
        if (parent is None or parent.is_ahead) and not self._unfit_reason(key):
            self._cold_runs[pid] = (time.monotonic(), request["warm"])

    def _unfit_reason(self, key: str) -> str:
        """ "" when there is none, or it may no longer hold."""
        why, stamps = self._unfit.get(key, ("", {}))
        if why and packages.have_changed(stamps):
            del self._unfit[key]
            return ""
        return why

    def handle_shim_exit(self, pid: int) -> None:
        """Called when a shim has exited: starts the parent for its environment if the shim ran cold."""
        if pid in self._cold_runs:
            self._make_parent(self._cold_runs.pop(pid)[1])

    def make_due_parents(self) -> None:
        """Called regularly: starts parents for environments whose first program has run for COLD_RUN_SECONDS."""
        now = time.monotonic()
        for pid, (since, warm_spec) in list(self._cold_runs.items()):
            if now - since > COLD_RUN_SECONDS:
                del self._cold_runs[pid]
                self._make_parent(warm_spec)

    def make_ahead(self, warm_spec: Mapping[str, Any]) -> str:
        """Has the parent of an environment made before a program asks for it, with the lowest priority. Returns "importing", or else
        "ready", or why there is none."""
        key = str(warm_spec["key"])
        if why := self._unfit_reason(key):
            return why
        if key not in self._parents:
            self._make_parent(warm_spec)
        parent = self._parents.get(key)
        if parent is not None and self._is_ready(key, parent):
            parent.is_ahead = False
            return "ready"
        return self._unfit_reason(key) or ("importing" if key in self._parents else "its interpreter does not start")

    def kill_parents(self) -> None:
        """Kills all parents, and waits for their end."""
        for key in list(self._parents):
            self._kill_parent(key)

    def _make_parent(self, warm_spec: Mapping[str, Any]) -> None:
        if (parent := self._parents.get(warm_spec["key"])) is not None:
            if not warm_spec.get("is_ahead"):
                parent.hurry()
            return
        if not self._is_worth_parent(warm_spec["key"]):
            return
        host_end, parent_end = socket.socketpair()
        os.set_inheritable(parent_end.fileno(), True)
        is_ahead = bool(warm_spec.get("is_ahead"))
        arguments = [self._source, str(parent_end.fileno()), self._imports, "low" if is_ahead else ""]
        command = [warm_spec["interpreter"], *warm_spec["flags"], "-c", self._boot, *arguments]
        null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        with (
            parent_end,
            contextlib.suppress(OSError),
        ):  # an interpreter that cannot be started fails in the cold start, too
            pid = os.posix_spawn(command[0], command, warm_spec["env"], file_actions=null)
            self._unused_parents += 1
            self._parents[warm_spec["key"]] = _Parent(pid, host_end, is_ahead=is_ahead)
            while len(self._parents) > MAX_PARENTS:
                self._kill_parent(next(iter(self._parents)))
            return
        host_end.close()

    def _is_worth_parent(self, key: str) -> bool:
        """Whether programs of this environment are likely to come again."""
        if self._unused_parents < MAX_UNUSED_PARENTS or key in self._keys_seen_once:
            self._keys_seen_once.discard(key)
            return True
        if len(self._keys_seen_once) >= 1000:
            self._keys_seen_once.clear()
        self._keys_seen_once.add(key)
        return False

    def _is_ready(self, key: str, parent: _Parent) -> bool:
        if parent.modules is not None:
            return True
        parent.connection.setblocking(False)
        try:
            answer = _read_answer(parent.connection)
            why, parent.modules = str(answer["unfit"]), frozenset(answer["modules"])
            parent.packages = dict(answer["packages"])
        except BlockingIOError:
            return False
        except (OSError, ValueError, KeyError):
            why = "its interpreter could not import what a warm start needs"
        if why:
            self._unfit[key] = why, parent.packages
            self._kill_parent(key)
        return not why

    def _kill_parent(self, key: str) -> None:
        parent = self._parents.pop(key)
        parent.hurry()  # also to die, which is waited for
        parent.connection.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(parent.pid, signal.SIGKILL)
            os.waitpid(parent.pid, 0)


def _read_answer(connection: socket.socket) -> dict[str, Any]:
    """One short answer. Raises OSError, or ValueError at the end of the stream."""
    return dict(json.loads(connection.recv(1 << 16)))
