"""The body of `POST /api/v1/sweeps`, and the file of `rowlock sweep --file`, which has the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rowlock.documents.yaml_reader import UnreadableYaml, read_yaml
from rowlock.errors import BadRequest, Cause
from rowlock.sweeps.early_stop import DEFAULT_FIRST, MOST_FIRST
from rowlock.sweeps.parameters import MOST_RUNS, Space, Values, parse_space
from rowlock.sweeps.points import Point, check_size, plan_grid, plan_random
from rowlock.sweeps.sweep import LEARNING
from rowlock.workloads.body_fields import BodyErrors, Fields

SEARCHES = ("grid", "random", LEARNING)
STOPS = ("asha",)
ORDERS = ("min", "max")
STARTUP = 10
"""Points of a search that learns which are drawn at random, at the submit."""
DEFAULT_PARALLEL = 16
MOST_PARALLEL = MOST_RUNS
_SEARCH_FIELDS = (
    "name",
    "parameters",
    "search",
    "samples",
    "seed",
    "maxParallel",
    "metric",
    "order",
    "stop",
    "stopAfter",
)
FIELDS = (*_SEARCH_FIELDS, "workload", "file", "command")
_LARGEST_SEED = 2**53 - 1
LONGEST_METRIC = 200
"""Characters of a metric's name."""
_MOST_FILE = 256 * 1024
"""Most characters of a file."""


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """A parsed request: what each run gets, and the submit that all runs share."""

    name: str
    search: str
    seed: int
    max_parallel: int
    names: tuple[str, ...]
    grid: tuple[tuple[str, ...], ...]
    points: tuple[Point, ...]
    workload: Mapping[str, Any]
    command: str = ""
    metric: str = ""
    is_max: bool = False
    stop_first: int = 0
    samples: int = 0
    """With a search that learns: the number of runs, of which `points` has the first."""
    space: Space = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.samples or len(self.points)


def parse_request(body: Any) -> SweepRequest:
    """Parse a request. Raises BadRequest with one cause per mistake."""
    errors = BodyErrors()
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
        errors.raise_if_any()
    Fields("", body, errors).allow_only(*FIELDS)
    top = Fields("", _with_file(body, errors), errors)
    name = top.label("name")
    workload = top.object("workload")
    if not workload.values:
        top.add_error(
            "workload", "required", "is missing: the body of a submit, with {name} for the value of a parameter."
        )
    if "name" in workload.values:
        top.add_error(
            "workload.name", "unsupported", "cannot be given: each run has the name of the sweep and its number."
        )
    search = "grid" if top.get("search") is None else top.choice("search", *SEARCHES)
    seed = top.integer("seed", 0, _LARGEST_SEED)
    samples = top.integer("samples", 1, MOST_RUNS)
    parallel = top.integer("maxParallel", 1, MOST_PARALLEL)
    if search == "grid":
        for name_of_field in ("samples", "seed"):
            if top.get(name_of_field) is not None:
                top.add_error(
                    name_of_field,
                    "unsupported",
                    "is for a random search, and a grid has every combination: add --search random, or leave it out.",
                )
    elif search in SEARCHES and top.get("samples") is None:
        top.add_error("samples", "required", "is missing: how many points are drawn, for example --samples 20.")
    metric, is_max, stop_first = _read_goal(top, search)
    command = top.text("command")
    errors.raise_if_any()
    space = parse_space(top.get("parameters"))
    if search == LEARNING:
        check_size(space, samples or 0)
        points = plan_random(space, min(samples or 0, STARTUP), seed or 0)
    elif search == "random":
        points = plan_random(space, samples or 0, seed or 0)
    else:
        points = plan_grid(space)
    lists = tuple(one.values for one in space.values() if isinstance(one, Values)) if search == "grid" else ()
    return SweepRequest(
        name,
        search,
        seed or 0,
        parallel or DEFAULT_PARALLEL,
        tuple(space),
        lists,
        tuple(points),
        workload.values,
        command,
        metric,
        is_max,
        stop_first,
        (samples or 0) if search == LEARNING else 0,
        space if search == LEARNING else {},
    )


def _read_goal(top: Fields, search: str) -> tuple[str, bool, int]:
    """The metric, whether its highest value is the best, and after how many values of it runs are first compared."""
    metric = top.text("metric")
    stop = "" if top.get("stop") is None else top.choice("stop", *STOPS)
    order = "min" if top.get("order") is None else top.choice("order", *ORDERS)
    first = top.integer("stopAfter", 1, MOST_FIRST)
    if len(metric) > LONGEST_METRIC or not metric.isprintable():
        top.add_error("metric", "format", f"is the name of a metric: {LONGEST_METRIC} printable characters at most.")
    if not metric and (search == LEARNING or stop):
        what = f"--search {LEARNING}" if search == LEARNING else f"--stop {stop}"
        top.add_error("metric", "required", f"is missing: {what} goes by it, for example --metric val_loss.")
    if not metric and top.get("order") is not None:
        top.add_error("order", "unsupported", "is about a metric: add --metric NAME, or leave it out.")
    if not stop and top.get("stopAfter") is not None:
        top.add_error("stopAfter", "unsupported", "is about early stops: add --stop asha, or leave it out.")
    return metric, order == "max", (first or DEFAULT_FIRST) if stop else 0


def _with_file(body: Mapping[str, Any], errors: BodyErrors) -> dict[str, Any]:
    """The body with the fields of its file, as far as it does not give them itself; parameters are merged by name."""
    text = Fields("", body, errors).text("file")
    if not text:
        return dict(body)
    if len(text) > _MOST_FILE:
        errors.add("file", "max", f"has {len(text):,} characters; {_MOST_FILE:,} are allowed.")
        errors.raise_if_any()
    try:
        read = read_yaml(text.encode())
    except UnreadableYaml as error:
        raise BadRequest(f"the file is no YAML: {error}", causes=[Cause("format", str(error), "file")]) from None
    if not isinstance(read, Mapping):
        message = f"must be YAML with some of the fields {', '.join(_SEARCH_FIELDS)}."
        raise BadRequest(f"the file {message}", causes=[Cause("type", message, "file")])
    Fields("file", read, errors).allow_only(*_SEARCH_FIELDS)
    given = {name: value for name, value in body.items() if value is not None}
    merged: dict[str, Any] = {**read, **given}
    ours, theirs = given.get("parameters"), read.get("parameters")
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        merged["parameters"] = {**theirs, **ours}
    return merged
