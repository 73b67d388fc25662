"""The template of a sweep's jobs: made from one submit whose name and parameters are markers, filled in for each run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from rowlock import objects
from rowlock.objects import Object
from rowlock.sweeps import placeholders
from rowlock.sweeps.parameters import INDEX, VARIABLE_PREFIX, Values, variable_name
from rowlock.sweeps.sweep import INDEX_LABEL, LABEL, Markers, Sweep
from rowlock.training.model import REQUEST_ANNOTATION
from rowlock.workloads.objects import SWEEP_PARAMETERS_ANNOTATION

_COMMAND_FIELDS = ("command", "args")


def make_markers(identity: str, names: tuple[str, ...]) -> Markers:
    """Markers that occur in no submit by accident. `identity`: the id of the sweep, a UUID."""
    stem = identity.replace("-", "")
    return Markers(f"sweep-{stem}", identity, f"i{stem}i", tuple(f"v{number}x{stem}v" for number in range(len(names))))


def mark_body(body: Mapping[str, Any], names: tuple[str, ...], markers: Markers) -> tuple[dict[str, Any], set[str]]:
    """The body of a submit with markers for its name, in its commands, and as variables; and the names of the parameters that its commands
    have. Raises BadRequest for an unknown placeholder."""
    values = {**dict(zip(names, markers.values, strict=True)), INDEX: markers.index}
    marked: dict[str, Any] = {**body, "name": markers.name}
    used: set[str] = set()
    for role in ("spec", "masterSpec"):
        if not isinstance(body.get(role), Mapping):
            continue
        spec = marked[role] = dict(body[role])
        for name in _COMMAND_FIELDS:
            if name in spec:
                spec[name], found = _fill(spec[name], values)
                used |= found
        if role == "spec" or isinstance(spec.get("environmentVariables"), list):
            given = spec.get("environmentVariables")
            own = [{"name": variable_name(name), "value": value} for name, value in values.items()]
            if given is None or isinstance(given, list):
                spec["environmentVariables"] = [*(given or ()), *own]
    return marked, used - {INDEX}


def reserved_variables(body: Mapping[str, Any]) -> list[str]:
    """The variables of a submit whose names only the sweep may give."""
    roles = [body.get(role) for role in ("spec", "masterSpec")]
    given = [one for role in roles if isinstance(role, Mapping) for one in role.get("environmentVariables") or ()]
    names = [str(one.get("name")) for one in given if isinstance(one, Mapping)]
    return [name for name in names if name.startswith(VARIABLE_PREFIX)]


def _fill(value: Any, values: Mapping[str, str]) -> tuple[Any, set[str]]:
    if isinstance(value, str):
        return placeholders.fill(value, values)
    if not isinstance(value, list):
        return value, set()  # refused later, with its field
    filled = [placeholders.fill(word, values) if isinstance(word, str) else (word, set[str]()) for word in value]
    return [word for word, _ in filled], {name for _, used in filled for name in used}


def replace_text(value: Any, replace: Callable[[str], str]) -> Any:
    """A JSON value with `replace` applied to each text in it, also to keys."""
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, list):
        return [replace_text(item, replace) for item in value]
    if isinstance(value, dict):
        return {replace(key): replace_text(item, replace) for key, item in value.items()}
    return value


def longest_values(sweep: Sweep) -> list[int]:
    """The characters of the longest value of each parameter; of points that are still to be drawn, too."""
    columns = sweep.grid or tuple(zip(*sweep.points, strict=True))
    lists = [one.values if isinstance(one, Values) else () for one in sweep.space.values()] or [()] * len(columns)
    return [max(map(len, (*column, *values)), default=0) for column, values in zip(columns, lists, strict=True)]


def longest_run(sweep: Sweep) -> int:
    """The characters that the job of a run may have as JSON, a little more or less for characters that JSON escapes: those of the template,
    with the longest value of each parameter wherever the template has its marker."""
    text = json.dumps(sweep.template, ensure_ascii=False)
    added = zip(sweep.markers.values, longest_values(sweep), strict=True)
    return len(text) + sum(text.count(marker) * max(0, length - len(marker)) for marker, length in added)


def build_run(sweep: Sweep, config_map: Object, index: int) -> Object:
    """The job of a run: the template with its name, id, number and values; the ConfigMap owns it."""
    markers, parameters = sweep.markers, sweep.parameters(index)
    texts = {
        markers.name: sweep.run_name(index), markers.id: sweep.run_id(index), markers.index: str(index),
        # Kubernetes replaces $$ and $(NAME) in commands and variables; a value is taken as it is
        **{marker: value.replace("$", "$$") for marker, value in zip(markers.values, sweep.point(index), strict=True)},
    }  # fmt: skip
    pattern, stem = re.compile("|".join(map(re.escape, texts))), markers.id.replace("-", "")

    def replace(text: str) -> str:
        is_marked = stem in text or markers.id in text  # most texts are not, and the pattern is slow
        return pattern.sub(lambda found: texts[found[0]], text) if is_marked else text

    job = replace_text(sweep.template, replace)
    meta = dict(job["metadata"])
    annotations = {
        **meta.get("annotations", {}),
        SWEEP_PARAMETERS_ANNOTATION: json.dumps(parameters, ensure_ascii=False),
    }
    if request := objects.annotations(sweep.template).get(REQUEST_ANNOTATION):
        whole = replace_text(json.loads(request), replace)
        annotations[REQUEST_ANNOTATION] = json.dumps(whole, separators=(",", ":"), ensure_ascii=False)
    meta |= {
        "labels": {**meta.get("labels", {}), LABEL: sweep.name, INDEX_LABEL: str(index)},
        "annotations": annotations,
        "ownerReferences": [objects.owner_reference(config_map)],
    }
    built: Object = {**job, "metadata": meta}
    return built
