"""Sets aside what another cluster left in the data directory; it is never adopted, and deleted after 30 days.

A cluster whose database is missing or empty knows no pod and no claim. The kubelet would take everything on disk for
leftovers of deleted pods: it would kill programs and delete persistent volumes that only look unowned.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import View
from rowlock.errors import Conflict
from rowlock.kubelet.files import beneath
from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.pod.facts import Run
from rowlock.kubelet.runtime import processes
from rowlock.kubelet.volumes.volumes import claim_directory
from rowlock.objects import uid

log = logging.getLogger(__name__)
_DIRECTORIES = ("pods", "logs", "claims", "checkpoints", "deaths", "remarks")
"""Directories that belong to the objects of one cluster. Images belong to the machine."""
_MOST_NAMED = 10
_ASIDE = "previous-"
_ASIDE_TIME = "%Y%m%dT%H%M%SZ"
KEPT_ASIDE_DAYS = 30
"""Days for which what another cluster left is kept."""
LONGEST_LOG = 16 << 20
"""Bytes of the pod host's log from which it is put aside, in place of the one before it."""


def set_aside(data_dir: Path, now: float) -> str:
    """Moves what an unknown cluster left into one directory. Returns a sentence for the user, "" when nothing was left.

    `now`: seconds since the epoch. Called before anything of the kubelet exists. Raises OSError."""
    found = [name for name in _DIRECTORIES if (data_dir / name).is_dir() and any((data_dir / name).iterdir())]
    if not found:
        return ""
    aside = data_dir / f"{_ASIDE}{time.strftime(_ASIDE_TIME, time.gmtime(now))}"
    aside.mkdir(mode=0o700)
    for name in found:
        (data_dir / name).rename(aside / name)
    return (
        f"cluster.db was missing or empty, so this is a new cluster; {', '.join(found)} of the cluster before it are kept for"
        f" {KEPT_ASIDE_DAYS} days in {aside}, and programs of its pods may still run. To have that cluster back: `rowlock down`, put its cluster.db and"
        f" these directories where they were, `rowlock up`"
    )


def limit_growth(data_dir: Path, now: float) -> list[str]:
    """Removes what was set aside more than `KEPT_ASIDE_DAYS` ago, and puts a long log of the pod host aside. Returns what was removed.

    `now`: seconds since the epoch. Blocks as long as the removal takes. What cannot be removed now is tried again at the next call."""
    removed = []
    for place in sorted(data_dir.glob(f"{_ASIDE}*")):
        with contextlib.suppress(ValueError, OSError):  # ValueError: a directory of somebody else
            made = calendar.timegm(time.strptime(place.name.removeprefix(_ASIDE), _ASIDE_TIME))
            if now - made > KEPT_ASIDE_DAYS * 86400.0:
                beneath.remove_path(str(place))
                removed.append(place.name)
                log.info("%s, which another cluster left, is removed", place.name)
    with contextlib.suppress(FileNotFoundError):
        written = data_dir / "podhost.log"
        if written.stat().st_size > LONGEST_LOG:  # the pod host has it open for appending: it is copied and emptied
            with contextlib.suppress(OSError):  # on a full disk there is room again when it is empty
                shutil.copyfile(written, f"{written}.1")
            os.truncate(written, 0)
    return removed


def describe_unknown(data_dir: Path, view: View) -> str:
    """A sentence on directories of pods and claims whose objects the database lacks; "" if there are none."""
    claims = set[str]()
    with contextlib.suppress(OSError):
        claims.update(name for name in os.listdir(data_dir / "claims") if name.count("_") == 2)
    claims -= {claim_directory(claim) for claim in view.all(kinds.PERSISTENT_VOLUME_CLAIM)}
    pods = {uid(pod) for pod in view.all(kinds.POD)}
    cards = [card for card in PodDirectories(data_dir).read_cards() if card.uid not in pods]
    parts = []
    if claims:
        parts.append(f"claims {_name_some(name.rpartition('_')[0].replace('_', '/', 1) for name in claims)}")
    if cards:
        parts.append(f"pods {_name_some(f'{card.namespace}/{card.name}' for card in cards)}")
    if not parts:
        return ""
    kept = "The directories of these claims are kept for 7 days; " if claims else ""
    ended = "programs of these pods are ended, and their logs kept" if cards else "no program is ended"
    return f"What has a directory and no object any more: {'; '.join(parts)}. {kept}{ended}"


def _name_some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _MOST_NAMED} more" if len(ordered) > _MOST_NAMED else ""
    return ", ".join(ordered[:_MOST_NAMED]) + more


def refuse_copy(data_dir: Path) -> None:
    """Raises Conflict when the directory is a copy and programs of the original's pods run: a server here would take them
    for its own and end them. Called before anything of the kubelet exists.

    A directory that was moved within its file system counts as the same; after a restart of the machine nothing of the
    original runs."""
    original = _last_server(data_dir)
    directories = PodDirectories(data_dir)
    if original.get("directory", directories.identity) == directories.identity:
        return
    alive = [run.shim for run in _runs(directories) if run.exit is None and processes.is_shim_alive(run)]
    if not alive:
        return
    path = (original.get("flags") or {}).get("data_dir") or "another directory"
    programs, run_verb = (f"{len(alive)} programs", "run") if len(alive) > 1 else ("1 program", "runs")
    raise Conflict(
        f"{data_dir} is a copy of {path}, and {programs} of its pods still {run_verb} (process {alive[0]}): a server here would"
        f" take them over. End them first (`rowlock down --data-dir {path}`), or copy a running cluster with `rowlock backup`"
        " and `rowlock restore`"
    )


def _last_server(data_dir: Path) -> dict[str, Any]:
    """What the last server of this directory, or of the one that it was copied from, wrote about itself; {} = nothing."""
    with contextlib.suppress(OSError, ValueError):
        facts = json.loads((data_dir / "server.json").read_bytes())
        return facts if isinstance(facts, dict) else {}
    return {}


def _runs(directories: PodDirectories) -> Iterator[Run]:
    for card in directories.read_cards():
        for container in directories.started_containers(card.uid):
            directory = directories.container_directory(card.uid, container)
            newest = processes.newest_run(directory)
            run = None if newest is None else processes.read_run(directory, newest)
            if run is not None:
                yield run
