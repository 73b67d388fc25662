"""Which processes are ranks: of one pod there may be several, below `torchrun`, `mpirun` or a shell script.

A rank is the topmost Python process that was given a number of its own (RANK with LOCAL_RANK, or MPI's), else the topmost
Python process; in a job without Python it is the pod's program. What a rank starts (data loaders) is a part of it.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rowlock.cluster.node.facts import ticks
from rowlock.cluster.node.kin import children
from rowlock.cluster.node.pod_facts import Run
from rowlock.objects import Object, uid
from rowlock.workloads import pods

_OWN_NUMBER = (b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK")
"""What MPI's launchers call a rank's number."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A pod of a job whose program runs."""

    job: Object
    pod: Object
    run: Run
    log: Path

    def wrote(self) -> float:
        """When its last line was written; 0 when there is none."""
        try:
            found = self.log.stat()
        except OSError:
            return 0.0
        return found.st_mtime if found.st_size else 0.0


@dataclass(frozen=True, slots=True)
class Rank:
    """A process that is a rank; `began` tells it from a later one of the same pid."""

    name: str
    pid: int
    began: int
    subject: Subject = field(compare=False)

    @property
    def lives(self) -> bool:
        return ticks(self.pid) == self.began


def ranks(subjects: Iterable[Subject]) -> list[Rank]:
    """Every rank of these pods, by number where that is known; no two have the same name."""
    every = list(subjects)
    found = [(number, pid, subject) for subject in every for pid, number in numbered(subject.run.pid)]
    found = found or [("", subject.run.pid, subject) for subject in every]
    named = [(f"rank {n}" if n else pods.tag(s.job, s.pod), pid, s) for n, pid, s in found]
    often = Counter(name for name, _, _ in named)
    made = [
        Rank(name if often[name] == 1 else f"{name} (pid {pid})", pid, ticks(pid), subject)
        for name, pid, subject in named
    ]
    if all(number.isdigit() for number, _, _ in found):
        made = [rank for _, rank in sorted(zip((int(n) for n, _, _ in found), made, strict=True), key=lambda p: p[0])]
    return [rank for rank in made if rank.began]


def in_order(subjects: Iterable[Subject]) -> list[Subject]:
    """Pods in order of their ranks."""
    by_uid = {uid(s.pod): s for s in subjects}
    return [by_uid[uid(pod)] for pod in pods.ordered(s.pod for s in by_uid.values())]


def numbered(root: int) -> list[tuple[int, str]]:
    """The Python ranks below (and with) process `root`: pid and number; "" where a rank has none but its pod's."""
    tree = {root: children(root)}
    waiting = list(tree[root])
    while waiting:
        pid = waiting.pop()
        tree[pid] = children(pid)
        waiting += tree[pid]
    return list(_below(root, tree, _environ(root).get(b"RANK", b"")))


def _below(pid: int, tree: dict[int, list[int]], pods_own: bytes) -> Iterator[tuple[int, str]]:
    python = is_python(pid)
    if python and (number := _number(_environ(pid), pods_own)):
        yield pid, number
        return
    found = [each for child in tree[pid] for each in _below(child, tree, pods_own)]
    if python:
        found = [each for each in found if each[1]] or [(pid, "")]
    yield from found


def _number(env: dict[bytes, bytes], pods_own: bytes) -> str:
    """A rank's number, if it was given one of its own: by `torchrun`, by MPI, or by a script other than its pod's."""
    if b"LOCAL_RANK" in env or env.get(b"RANK", pods_own) != pods_own:
        return env.get(b"RANK", env.get(b"LOCAL_RANK", b"")).decode(errors="replace")
    return next((env[word].decode(errors="replace") for word in _OWN_NUMBER if word in env), "")


def is_python(pid: int) -> bool:
    """By the name of its program; one that has Python inside has another."""
    return program(pid).startswith(("python", "pypy"))


def without_python(pid: int) -> bool:
    """There is no Python in it for sure: neither is that its program nor has it loaded the library."""
    if not program(pid) or is_python(pid):
        return False
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return b"libpython" not in file.read()
    except OSError:
        return False


def program(pid: int) -> str:
    """The name of the file that it runs; "" when that may not be known, or it has gone."""
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return ""


def _environ(pid: int) -> dict[bytes, bytes]:
    """As the process was started, warm or cold (`command_line.py`); what it changed since then is not in it."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/environ", "rb") as file:
            return dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0") if b"=" in entry)
    return {}
