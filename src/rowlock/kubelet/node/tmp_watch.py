"""Warns jobs that use the same places in this machine's /tmp, which all programs of this machine share.

Two kinds are found every few seconds: sockets of two jobs in one directory (two Ray heads in /tmp/ray, whose `ray stop` ends
both), and programs of two jobs that name one `file:///tmp/…` (one process group of two jobs). It isolates nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rowlock import kinds
from rowlock.api import Record, View
from rowlock.kubelet.files import untrusted
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.objects import Key

WATCH_INTERVAL = 5.0
_FILE_URL = re.compile(r"file://(/tmp/[\w./+@:-]+)(?![\w./+@:{-])")
"""A complete address: not one that continues with a part known only at run time (`{name}`)."""
_SOCKET = re.compile(r" (/tmp/[^/\s]+)/\S+$", re.MULTILINE)
_MAX_TEXT = 1 << 18
_MAX_SOCKETS = 1 << 20
_SCRIPT_WORDS = 8
"""Words at the beginning of a command that are searched for a script."""
_MAX_PLACES = 32
"""Most places of one pod."""

Places = frozenset[str]


def rendezvous_files(text: str) -> Places:
    """The rendezvous files below /tmp that a text (command, variables or program) names."""
    return frozenset(f"file://{path}" for path in _FILE_URL.findall(text)[:_MAX_PLACES])


def socket_directories(table: str) -> Places:
    """The directories of /tmp below which sockets are bound; `table`: /proc/PID/net/unix."""
    return frozenset(_SOCKET.findall(table)[:_MAX_PLACES])


def find_meetings(places: Mapping[str, Iterable[str]], owners: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """(pod, place) → a pod of another job that uses it, too. `places`: pod → its places; `owners`: pod → its job."""
    by_place: dict[str, list[str]] = {}
    for pod in sorted(places):
        for place in places[pod]:
            by_place.setdefault(place, []).append(pod)
    found = {}
    for place, pods in by_place.items():
        for pod in pods:
            other = next((each for each in pods if owners[each] != owners[pod]), None)
            if other is not None:
                found[pod, place] = other
    return found


def meeting_sentence(place: str, other: Key) -> str:
    """The event's message about a place that a pod shares with a pod of another job: what happens, and what to do."""
    whose = f"{other.name} of another job"
    if place.startswith("file://"):
        return (
            f"{place} is named by {whose}, too: programs of this machine share its /tmp, so both become one process group. "
            "Use MASTER_ADDR (env://), or put the job's name into the path"
        )
    return (
        f"{whose} has sockets in {place}, too: programs of this machine share its /tmp, and may find or stop each other there "
        "(`ray stop`, `ray.init(address='auto')`). Give each a directory of its own (`ray start --temp-dir`), or mount an emptyDir at /tmp"
    )


@dataclass(slots=True)
class TmpWatch:
    """Watches all pods of this machine."""

    view: View
    pod_states: Mapping[str, PodState]
    record: Callable[[Record], None]
    has_namespaces: bool
    """Whether pods have networks of their own; if not, each sees the sockets of all."""
    _told: set[tuple[str, str]] = field(default_factory=set)
    _programs: dict[int, Places] = field(default_factory=dict)
    """Pid → the files that the program names; this does not change while it runs."""

    async def run(self) -> None:
        """Calls `look` every WATCH_INTERVAL seconds until cancelled."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Records events for places that are newly shared. Reads nothing while fewer than two jobs run."""
        states = {uid: s for uid, s in self.pod_states.items() if not s.card.contained and any(s.live_runs())}
        owners = {uid: state.card.owner or uid for uid, state in states.items()}
        if len(set(owners.values())) < 2:
            return
        pids = {uid: [run.pid for run in state.live_runs() if run.pid] for uid, state in states.items()}
        places = await asyncio.to_thread(self._read_places, pids)
        for (uid, place), other in find_meetings(places, owners).items():
            if (uid, place) in self._told or (pod := self.view.get(kinds.POD, *states[uid].card.key)) is None:
                continue
            self._told.add((uid, place))
            text = meeting_sentence(place, states[other].card.key)
            self.record(Record(pod, "Warning", "SharedTmp", text, "kubelet"))
        self._told = {(uid, place) for uid, place in self._told if uid in self.pod_states}

    def _read_places(self, pids: Mapping[str, list[int]]) -> dict[str, Places]:
        living = {pid for of_pod in pids.values() for pid in of_pod}
        self._programs = {pid: places for pid, places in self._programs.items() if pid in living}
        return {uid: Places().union(*map(self._places_of, of_pod)) for uid, of_pod in pids.items()}

    def _places_of(self, pid: int) -> Places:
        try:
            if not os.path.samestat(os.stat(f"/proc/{pid}/root/tmp"), os.stat("/tmp")):
                return Places()
            if pid not in self._programs:
                self._programs[pid] = _files_of_program(pid)
            if not self.has_namespaces:
                return self._programs[pid]
            with open(f"/proc/{pid}/net/unix", errors="replace") as file:
                return self._programs[pid] | socket_directories(file.read(_MAX_SOCKETS))
        except OSError:  # it has ended, or is another user's
            return Places()


def _files_of_program(pid: int) -> Places:
    """The rendezvous files that its command, its variables and its script name."""
    command, variables = (_read_words(f"/proc/{pid}/{name}") for name in ("cmdline", "environ"))
    text = "\n".join((*command, *variables, ""))
    script = next((word for word in command[:_SCRIPT_WORDS] if word.endswith(".py")), "")
    if script:
        where = f"/proc/{pid}/root" if script.startswith("/") else f"/proc/{pid}/cwd/"
        with contextlib.suppress(OSError):  # not readable, or no file: only the command line counts
            text += untrusted.read_file(where + script, _MAX_TEXT).decode(errors="replace")
    return rendezvous_files(text)


def _read_words(path: str) -> list[str]:
    with open(path, "rb") as file:
        return file.read(_MAX_TEXT).decode(errors="replace").split("\0")
