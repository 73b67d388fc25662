"""A sweep as an object: a ConfigMap, whose data the server writes once and seals.

    metadata.labels        rowlock.dev/sweep: its name, rowlock.dev/workload-id: its id
    metadata.annotations   rowlock.dev/sweep-begun: runs with a lower number were made, so they are not made again after users delete them
                           rowlock.dev/sweep-stopped: "true" while no further runs are made
    data["sweep.json"]     what was submitted: points, template of the jobs, submitter
    data["seal"]           a code of this text, the namespace and the name, with a key that only the server has

Users may write ConfigMaps. The server makes jobs only for texts that it has sealed itself, after everything about the submit was checked with
the rights of the submitter: by editing or copying a sweep nobody gets a job made.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock import kinds, objects
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.sweeps.points import Point, count_grid, grid_point
from rowlock.workloads.objects import WORKLOAD_ID

LABEL = "rowlock.dev/sweep"
"""Label of a sweep's ConfigMap, and of the jobs of its runs, with its name."""
INDEX_LABEL = "rowlock.dev/sweep-index"
PARAMETERS_ANNOTATION = "rowlock.dev/sweep-parameters"
"""Annotation of a job: the parameters of its run, as JSON."""
BEGUN_ANNOTATION = "rowlock.dev/sweep-begun"
STOPPED_ANNOTATION = "rowlock.dev/sweep-stopped"
DATA_KEY, SEAL_KEY = "sweep.json", "seal"
MOST_BYTES = 900_000
"""Most bytes of a sweep's text: a ConfigMap has one MiB at most."""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SweepSubmitter:
    """In whose name, and with whose rights, runs are made. `is_owner`: the owner of the server, who may do everything."""

    user: str
    groups: tuple[str, ...] = ()
    is_owner: bool = False


@dataclass(frozen=True, slots=True)
class Markers:
    """Texts in the template that stand for what differs between runs: the job's name, its id, its number, the values of parameters."""

    name: str
    id: str
    index: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was submitted. Either `grid` (lists of values, of which every combination is a run) or `points` has the runs."""

    name: str
    id: str
    search: str
    seed: int
    max_parallel: int
    names: tuple[str, ...]
    """The names of the parameters."""
    grid: tuple[tuple[str, ...], ...]
    points: tuple[Point, ...]
    template: Object
    markers: Markers
    submitter: SweepSubmitter
    command: str = ""
    """The command line that submitted it."""

    @property
    def total(self) -> int:
        """The number of runs."""
        return count_grid([len(values) for values in self.grid]) if self.grid else len(self.points)

    @property
    def kind(self) -> Kind:
        """The kind of the runs' jobs."""
        return kinds.by_object(self.template)

    def point(self, index: int) -> Point:
        return grid_point(self.grid, index) if self.grid else self.points[index]

    def parameters(self, index: int) -> dict[str, str]:
        """The parameters of a run, by name."""
        return dict(zip(self.names, self.point(index), strict=True))

    def run_name(self, index: int) -> str:
        """The name of a run's job, the same at every try to make it."""
        return f"{self.name}-{index}"

    def run_id(self, index: int) -> str:
        """The workload id of a run, the same at every try to make it."""
        digest = hashlib.sha256(f"{self.id}/{index}".encode()).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def object_name(sweep: str) -> str:
    """The name of a sweep's ConfigMap."""
    return f"sweep-{sweep}"


def to_object(sweep: Sweep, namespace: str, key: bytes) -> Object:
    """The ConfigMap of a sweep, sealed with the server's key."""
    text = json.dumps(_to_json(sweep), separators=(",", ":"), ensure_ascii=False)
    name = object_name(sweep.name)
    labels = {LABEL: sweep.name, WORKLOAD_ID: sweep.id}
    return {
        "apiVersion": kinds.CONFIG_MAP.api_version,
        "kind": kinds.CONFIG_MAP.name,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "data": {DATA_KEY: text, SEAL_KEY: seal_of(key, namespace, name, text)},
    }


def seal_of(key: bytes, namespace: str, name: str, text: str) -> str:
    """The seal of a sweep's text in the ConfigMap of this name."""
    return hmac.new(key, f"{namespace}\n{name}\n{text}".encode(), hashlib.sha256).hexdigest()


def is_sweep(config_map: Object) -> bool:
    """Whether a ConfigMap is, or says that it is, a sweep."""
    label = objects.labels(config_map).get(LABEL)
    return label is not None and objects.name(config_map) == object_name(str(label))


def read_object(config_map: Object, key: bytes) -> Sweep | None:
    """The sweep of a ConfigMap; None unless its text is as the server with this key wrote it, in this ConfigMap."""
    data = config_map.get("data")
    text, seal = (data.get(DATA_KEY), data.get(SEAL_KEY)) if isinstance(data, Mapping) else (None, None)
    if not isinstance(text, str) or not isinstance(seal, str) or not is_sweep(config_map):
        return None
    expected = seal_of(key, objects.namespace(config_map), objects.name(config_map), text)
    if not hmac.compare_digest(expected.encode(), seal.encode()):
        return None
    stored = json.loads(text)  # ours, so well-formed
    return _from_json(stored) if stored.get("format") == _FORMAT else None


def begun_runs(config_map: Object) -> int:
    """Runs with a lower number than this were made before. What is no number counts as 0."""
    text = objects.annotations(config_map).get(BEGUN_ANNOTATION, "")
    return int(text) if objects.is_digits(text) else 0


def is_stopped(config_map: Object) -> bool:
    return objects.annotations(config_map).get(STOPPED_ANNOTATION) == "true"


def index_of(job: Object, sweep: Sweep) -> int | None:
    """The number of the run that a job is; None for a job that this sweep has not made."""
    text = objects.labels(job).get(INDEX_LABEL, "")
    index = int(text) if objects.is_digits(text) else -1
    is_own = 0 <= index < sweep.total and objects.name(job) == sweep.run_name(index)
    return index if is_own and objects.labels(job).get(LABEL) == sweep.name else None


def _to_json(sweep: Sweep) -> dict[str, Any]:
    submitter, markers = sweep.submitter, sweep.markers
    return {
        "format": _FORMAT, "name": sweep.name, "id": sweep.id, "search": sweep.search, "seed": sweep.seed,
        "maxParallel": sweep.max_parallel, "names": sweep.names, "grid": sweep.grid, "points": sweep.points,
        "template": sweep.template, "command": sweep.command,
        "markers": {"name": markers.name, "id": markers.id, "index": markers.index, "values": markers.values},
        "submitter": {"user": submitter.user, "groups": submitter.groups, "isOwner": submitter.is_owner},
    }  # fmt: skip


def _from_json(stored: Mapping[str, Any]) -> Sweep:
    submitter, markers = stored["submitter"], stored["markers"]
    return Sweep(
        name=stored["name"], id=stored["id"], search=stored["search"], seed=stored["seed"], max_parallel=stored["maxParallel"],
        names=tuple(stored["names"]), grid=_points(stored["grid"]), points=_points(stored["points"]), template=stored["template"],
        markers=Markers(markers["name"], markers["id"], markers["index"], tuple(markers["values"])),
        submitter=SweepSubmitter(submitter["user"], tuple(submitter["groups"]), submitter["isOwner"]), command=stored["command"],
    )  # fmt: skip


def _points(rows: Sequence[Sequence[str]]) -> tuple[Point, ...]:
    return tuple(tuple(row) for row in rows)
