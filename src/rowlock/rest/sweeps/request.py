"""The body of `POST /api/v1/sweeps`, and the file of `rowlock sweep --file`, which has the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.documents.yaml_reader import UnreadableYaml, read_yaml
from rowlock.errors import BadRequest, Cause
from rowlock.sweeps.parameters import MOST_RUNS, Values, parse_space
from rowlock.sweeps.points import Point, plan_grid, plan_random
from rowlock.workloads.body_fields import BodyErrors, Fields

SEARCHES = ("grid", "random")
DEFAULT_PARALLEL = 16
MOST_PARALLEL = MOST_RUNS
_SEARCH_FIELDS = ("name", "parameters", "search", "samples", "seed", "maxParallel")
FIELDS = (*_SEARCH_FIELDS, "workload", "file", "command")
_LARGEST_SEED = 2**53 - 1
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

    @property
    def total(self) -> int:
        return len(self.points)


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
        for field in ("samples", "seed"):
            if top.get(field) is not None:
                top.add_error(
                    field,
                    "unsupported",
                    "is for a random search, and a grid has every combination: add --search random, or leave it out.",
                )
    elif search == "random" and top.get("samples") is None:
        top.add_error("samples", "required", "is missing: how many points are drawn, for example --samples 20.")
    command = top.text("command")
    errors.raise_if_any()
    space = parse_space(top.get("parameters"))
    if search == "random":
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
    )


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
