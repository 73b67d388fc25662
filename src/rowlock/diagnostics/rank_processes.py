"""Finds the processes that are ranks: a pod may have several, below `torchrun`, `mpirun` or a shell script.

A rank is the topmost Python process that got its own number (from torchrun, if it differs from its pod's, or from MPI). Else, where the
topmost Python process has started several others that are connected to each other (`torch.multiprocessing.spawn`), each of those is one;
else the topmost Python process itself; in a job without Python the pod's program. Descendants of a rank (data loaders) belong to it.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rowlock.diagnostics.process_sockets import connected_siblings
from rowlock.kubelet.pod.facts import Run
from rowlock.kubelet.remote_shell.shell_access import key_files
from rowlock.kubelet.shim.fact_files import ticks
from rowlock.kubelet.shim.process_tree import children, descendants
from rowlock.objects import Object, dig, is_digits, uid
from rowlock.workloads import pods

_TORCH_RANK_VARIABLES = (b"RANK", b"LOCAL_RANK", b"TORCHELASTIC_RUN_ID")
"""Variables that `torchrun` sets for every rank; the first two may also be set for the pod, for its only rank."""
_MPI_RANK_VARIABLES = (b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK")
"""Variables in which MPI's launchers put a rank's number."""
_HELPERS = ("rowlock.kubelet.images.kubectl_delivery", "rowlock.kubelet.remote_shell.")
_MAX_COMMAND, _MAX_MAPS = 64 * 1024, 4 << 20
FRAMEWORKS = frozenset({"torch", "tensorflow", "jaxlib", "paddle", "mpi4py", "xgboost", "lightgbm", "mindspore"})
"""Packages whose native code identifies a program as a training."""


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A job's pod whose program runs; `log`: the log of that run."""

    job: Object
    pod: Object
    run: Run
    log: Path

    def last_output_time(self) -> float:
        """The mtime of its log, i.e. when its last line was written; 0 when it is empty."""
        try:
            status = self.log.stat()
        except OSError:
            return 0.0
        return status.st_mtime if status.st_size else 0.0


@dataclass(frozen=True, slots=True)
class RankProcess:
    """A process that is a rank; `start_ticks` distinguishes it from a later process with the same pid."""

    name: str
    pid: int
    start_ticks: int
    running_pod: RunningPod = field(compare=False)

    @property
    def is_alive(self) -> bool:
        return ticks(self.pid) == self.start_ticks


def find_ranks(running_pods: Iterable[RunningPod]) -> list[RankProcess]:
    """Every rank of these pods, ordered by number if all are known; names are unique."""
    all_pods = list(running_pods)
    processes = [(number, pid, subject) for subject in all_pods for pid, number in find_python_ranks(subject.run.pid)]
    processes = _find_mpi_ranks(all_pods) or processes
    programs = [subject for subject in all_pods if not _is_helper(subject.run.pid)]
    processes = processes or [("", subject.run.pid, subject) for subject in programs]
    named_processes = [(f"rank {n}" if n else pods.rank_label(s.job, s.pod), pid, s) for n, pid, s in processes]
    name_counts = Counter(name for name, _, _ in named_processes)
    result = [
        RankProcess(name if name_counts[name] == 1 else f"{name} (pid {pid})", pid, ticks(pid), subject)
        for name, pid, subject in named_processes
    ]
    if all(is_digits(number) for number, _, _ in processes):
        result = [
            rank for _, rank in sorted(zip((int(n) for n, _, _ in processes), result, strict=True), key=lambda p: p[0])
        ]
    return [rank for rank in result if rank.start_ticks]


def _find_mpi_ranks(all_pods: Iterable[RunningPod]) -> list[tuple[str, int, RunningPod]]:
    """The ranks of an MPIJob, or a TrainJob of an MPI runtime, found by the pods' PID namespaces: mpirun starts them in other pods from
    outside, so they are not always descendants of the pods' programs. Their output is in the launcher's log."""
    mpi_pods = [subject for subject in all_pods if subject.job["kind"] == "MPIJob" or _has_ssh_key(subject.pod)]
    by_namespace = {namespace: s for s in mpi_pods if (namespace := _pid_namespace(s.run.pid))}
    if not by_namespace or _pid_namespace(os.getpid()) in by_namespace:
        return []
    launcher = next((s for s in mpi_pods if pods.replica_role(s.pod) == "launcher"), None)
    found: dict[int, tuple[str, int, RunningPod]] = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if (subject := by_namespace.get(_pid_namespace(pid))) is not None and (
            number := _rank_number(read_environ(pid), {})
        ):
            found[pid] = (number, pid, replace(subject, log=launcher.log) if launcher else subject)
    ranks = {pid: each for pid, each in found.items() if is_python(pid)} or found
    below = {child for pid in ranks for child in descendants(pid)}
    return [each for pid, each in ranks.items() if pid not in below]


def are_all_in_launcher(ranks: Sequence[RankProcess]) -> bool:
    """Whether mpirun has started all ranks of an MPIJob in its own pod. False where pods have no PID namespace: it cannot be known."""
    if {pods.replica_role(rank.running_pod.pod) for rank in ranks} != {"launcher"}:
        return False  # most jobs, without a read of anything
    has_namespaces = all(_pid_namespace(rank.pid) not in ("", _pid_namespace(os.getpid())) for rank in ranks)
    return has_namespaces and all(_rank_number(read_environ(rank.pid), {}) for rank in ranks)


def _has_ssh_key(pod: Object) -> bool:
    """Whether the pod belongs to a job whose pods reach each other by ssh."""
    return bool(key_files(dig(pod, "spec.volumes", None) or ()))


def _pid_namespace(pid: int) -> str:
    """The PID namespace of a process; "" when it may not be read, or the process has ended."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def sort_by_rank(running_pods: Iterable[RunningPod]) -> list[RunningPod]:
    """Pods in order of their ranks."""
    by_uid = {uid(s.pod): s for s in running_pods}
    return [by_uid[uid(pod)] for pod in pods.sort_by_rank(s.pod for s in by_uid.values())]


def find_python_ranks(root: int) -> list[tuple[int, str]]:
    """The Python ranks among process `root` and its descendants: pid and number; "" if a rank has only its pod's number."""
    tree = {root: children(root)}
    unvisited = list(tree[root])
    while unvisited:
        pid = unvisited.pop()
        tree[pid] = children(pid)
        unvisited += tree[pid]
    return list(_find_ranks_below(root, tree, read_environ(root)))


def _find_ranks_below(
    pid: int, tree: dict[int, list[int]], pod_env: Mapping[bytes, bytes]
) -> Iterator[tuple[int, str]]:
    is_python_process = is_python(pid) and not _is_helper(pid)
    if is_python_process and (number := _rank_number(read_environ(pid), pod_env)):
        yield pid, number
        return
    below = [each for child in tree[pid] for each in _find_ranks_below(child, tree, pod_env)]
    if is_python_process:
        spawned = [child for child in tree[pid] if is_python(child)]
        below = [each for each in below if each[1]] or [(each, "") for each in _ranks_among(pid, spawned) or [pid]]
    yield from below


def _ranks_among(parent: int, spawned: list[int]) -> list[int]:
    """The children of a process that are ranks without numbers, in the order of their starts: Python with a framework, connected to each
    other, while the parent itself waits."""
    if len(spawned) < 2 or not _is_asleep(parent):
        return []
    trainers = [pid for pid in spawned if not loaded_packages(pid).isdisjoint(FRAMEWORKS)]
    return sorted(connected_siblings(parent, trainers), key=ticks) if len(trainers) > 1 else []


def _is_asleep(pid: int) -> bool:
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"S"
    return False


def _rank_number(env: Mapping[bytes, bytes], pod_env: Mapping[bytes, bytes]) -> str:
    """A rank's own number, set by `torchrun`, MPI or a script; "" when it has only its pod's."""
    if any(env[name] != pod_env.get(name) for name in _TORCH_RANK_VARIABLES if name in env):
        return env.get(b"RANK", env.get(b"LOCAL_RANK", b"")).decode(errors="replace")
    return next((env[word].decode(errors="replace") for word in _MPI_RANK_VARIABLES if word in env), "")


def _is_helper(pid: int) -> bool:
    """Whether the process is one of rowlock's replacements for kubectl, ssh and sshd in the pods of MPI jobs."""
    return any(
        word.endswith("/kubectl_delivery.py") or word.startswith(_HELPERS) for word in read_command_line(pid)[:5]
    )


def is_python(pid: int) -> bool:
    """Whether the process's executable is Python; a program that embeds Python is not recognised."""
    return program_name(pid).startswith(("python", "pypy"))


def has_no_python(pid: int) -> bool:
    """Whether the process certainly has no Python: neither its executable is Python nor has it loaded libpython."""
    if not program_name(pid) or is_python(pid):
        return False
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return b"libpython" not in file.read()
    except OSError:
        return False


def loaded_packages(pid: int) -> set[str]:
    """Packages whose native code a process has mapped, by the directory below `site-packages`."""
    found = set()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        for line in file.read(_MAX_MAPS).splitlines():
            _, _, path = line.partition(b"-packages/")
            if path:
                found.add(path.partition(b"/")[0].decode(errors="replace"))
    return found


def program_name(pid: int) -> str:
    """The name of the process's executable; "" when it may not be read, or the process has ended."""
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return ""


def read_environ(pid: int) -> dict[bytes, bytes]:
    """The environment with which the process was started, warm or cold (`command_line.py`); later changes are not included."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/environ", "rb") as file:
            return dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0") if b"=" in entry)
    return {}


def read_command_line(pid: int) -> list[str]:
    """The words of the process's command line; empty when it has ended."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [word.decode(errors="replace") for word in file.read(_MAX_COMMAND).split(b"\0")]
    return []


def read_variables(pid: int) -> dict[str, str]:
    """The variables with which a process was started (`read_environ`), as text."""
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, value in read_environ(pid).items()}
