"""A sweep as an object: a ConfigMap, whose data the server writes once and seals.

    metadata.labels        rowlock.dev/sweep: its name, rowlock.dev/workload-id: its id
    metadata.annotations   rowlock.dev/sweep-begun: runs with a lower number were made, so they are not made again after users delete them
                           rowlock.dev/sweep-stopped: "true" while no further runs are made, "now" while those that were made are suspended, too
    data["sweep.json"]     what was submitted: points, template of the jobs, submitter
    data["seal"]           a code of this text, the namespace and the name, with a key that only the server has
    data["points.json"]    with a search that learns from results: all points by now; "points-seal" is its seal

Users may write ConfigMaps. The server makes jobs only for texts that it has sealed itself, after everything about the submit was checked with
the rights of the submitter: by editing or copying a sweep nobody gets a job made.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rowlock import kinds, objects
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.sweeps.early_stop import StopRule
from rowlock.sweeps.parameters import Distribution, Space, Values
from rowlock.sweeps.points import Point, count_grid, grid_point
from rowlock.workloads.objects import SWEEP_LABEL, WORKLOAD_ID

LABEL = SWEEP_LABEL
INDEX_LABEL = "rowlock.dev/sweep-index"
BEGUN_ANNOTATION = "rowlock.dev/sweep-begun"
STOPPED_ANNOTATION = "rowlock.dev/sweep-stopped"
STOPPED_NOW = "now"
DATA_KEY, SEAL_KEY = "sweep.json", "seal"
POINTS_KEY, POINTS_SEAL_KEY = "points.json", "points-seal"
MOST_BYTES = 900_000
"""Most bytes of a sweep's text: a ConfigMap has one MiB at most."""
LEARNING = "tpe"
"""The search that draws points from what earlier runs reached."""
_FORMATS = (1, 2)
"""Of texts that are read. 2: with a search that learns, a metric, or early stops, which an older server does not know."""


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
    metric: str = ""
    """The metric of the sweep, "" if none was named."""
    is_max: bool = False
    """Whether the highest value of the metric is the best."""
    stop_first: int = 0
    """With early stops: after how many values of the metric runs are first compared; 0 = runs are not stopped early."""
    samples: int = 0
    """With a search that learns: the number of runs. `points` has those that were drawn so far."""
    space: Space = field(default_factory=dict)
    """With such a search: what it draws from."""

    @property
    def total(self) -> int:
        """The number of runs."""
        return self.samples or self.drawn_count

    @property
    def drawn_count(self) -> int:
        """The runs with a lower number have their parameters."""
        return count_grid([len(values) for values in self.grid]) if self.grid else len(self.points)

    @property
    def stop_rule(self) -> StopRule | None:
        """How runs are stopped early; None if they are not."""
        return StopRule(self.metric, self.is_max, self.stop_first) if self.stop_first else None

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
    if stored.get("format") not in _FORMATS:
        return None
    sweep = _from_json(stored)
    points = _read_points(config_map, sweep, key) if sweep.samples else ()
    return None if points is None else replace(sweep, points=points or sweep.points)


def points_data(config_map: Object, sweep: Sweep, points: Sequence[Point], key: bytes) -> dict[str, str]:
    """The data of a ConfigMap with all points that are drawn by now, sealed."""
    text = json.dumps(points, separators=(",", ":"), ensure_ascii=False)
    return {POINTS_KEY: text, POINTS_SEAL_KEY: _seal_points(config_map, sweep, text, key)}


def _seal_points(config_map: Object, sweep: Sweep, text: str, key: bytes) -> str:
    """No text of a sweep begins like this, so that neither seal is good for the other text."""
    return seal_of(key, objects.namespace(config_map), objects.name(config_map), f"points of {sweep.id}\n{text}")


def _read_points(config_map: Object, sweep: Sweep, key: bytes) -> tuple[Point, ...] | None:
    """The points, those of the submit among them, once others were drawn; None if they are not as the server wrote them."""
    text, seal = config_map["data"].get(POINTS_KEY), config_map["data"].get(POINTS_SEAL_KEY)
    if text is None and seal is None:
        return ()
    if not isinstance(text, str) or not isinstance(seal, str):
        return None
    is_ours = hmac.compare_digest(_seal_points(config_map, sweep, text, key).encode(), seal.encode())
    return _points(json.loads(text)) if is_ours else None


def begun_runs(config_map: Object) -> int:
    """Runs with a lower number than this were made before. What is no number counts as 0."""
    text = objects.annotations(config_map).get(BEGUN_ANNOTATION, "")
    return int(text) if objects.is_digits(text) else 0


def is_stopped(config_map: Object) -> bool:
    """Whether no further runs are made."""
    return objects.annotations(config_map).get(STOPPED_ANNOTATION) in ("true", STOPPED_NOW)


def is_stopped_now(config_map: Object) -> bool:
    """Whether also the runs that were made are suspended."""
    return objects.annotations(config_map).get(STOPPED_ANNOTATION) == STOPPED_NOW


def index_of(job: Object, sweep: Sweep) -> int | None:
    """The number of the run that a job is; None for a job that this sweep has not made."""
    text = objects.labels(job).get(INDEX_LABEL, "")
    index = int(text) if objects.is_digits(text) else -1
    is_own = 0 <= index < sweep.total and objects.name(job) == sweep.run_name(index)
    return index if is_own and objects.labels(job).get(LABEL) == sweep.name else None


def _to_json(sweep: Sweep) -> dict[str, Any]:
    submitter, markers = sweep.submitter, sweep.markers
    learned = {
        "metric": sweep.metric, "isMax": sweep.is_max, "stopFirst": sweep.stop_first, "samples": sweep.samples,
        "space": {name: _parameter_json(parameter) for name, parameter in sweep.space.items()},
    }  # fmt: skip
    return {
        "format": 2 if sweep.metric else 1, "name": sweep.name, "id": sweep.id, "search": sweep.search, "seed": sweep.seed,
        "maxParallel": sweep.max_parallel, "names": sweep.names, "grid": sweep.grid, "points": sweep.points,
        "template": sweep.template, "command": sweep.command,
        "markers": {"name": markers.name, "id": markers.id, "index": markers.index, "values": markers.values},
        "submitter": {"user": submitter.user, "groups": submitter.groups, "isOwner": submitter.is_owner},
        **(learned if sweep.metric else {}),
    }  # fmt: skip


def _from_json(stored: Mapping[str, Any]) -> Sweep:
    submitter, markers = stored["submitter"], stored["markers"]
    return Sweep(
        name=stored["name"], id=stored["id"], search=stored["search"], seed=stored["seed"], max_parallel=stored["maxParallel"],
        names=tuple(stored["names"]), grid=_points(stored["grid"]), points=_points(stored["points"]), template=stored["template"],
        markers=Markers(markers["name"], markers["id"], markers["index"], tuple(markers["values"])),
        submitter=SweepSubmitter(submitter["user"], tuple(submitter["groups"]), submitter["isOwner"]), command=stored["command"],
        metric=stored.get("metric", ""), is_max=stored.get("isMax", False), stop_first=stored.get("stopFirst", 0),
        samples=stored.get("samples", 0),
        space={name: _read_parameter(written) for name, written in stored.get("space", {}).items()},
    )  # fmt: skip


def _points(rows: Sequence[Sequence[str]]) -> tuple[Point, ...]:
    return tuple(tuple(row) for row in rows)


def _parameter_json(parameter: Values | Distribution) -> dict[str, Any]:
    if isinstance(parameter, Values):
        return {"values": parameter.values}
    return {"low": parameter.low, "high": parameter.high, "isLog": parameter.is_log}


def _read_parameter(written: Mapping[str, Any]) -> Values | Distribution:
    if "values" in written:
        return Values(tuple(written["values"]))
    return Distribution(written["low"], written["high"], written["isLog"])
