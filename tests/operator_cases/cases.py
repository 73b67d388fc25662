"""Operator cases as data: short ones written by hand (YAML), and recorded ones with whole manifests and accepted states.

`tests/data/README.md` has the words of both.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = Any
SHAPES: dict[str, tuple[str, str, frozenset[str]]] = {
    "PyTorchJob": ("pytorch", "pytorch", frozenset({"Master", "Worker"})),
    "TFJob": ("tf", "tensorflow", frozenset({"Chief", "Master", "PS", "Worker", "Evaluator"})),
    "XGBoostJob": ("xgb", "xgboost", frozenset({"Master", "Worker"})),
    "MPIJob": ("mpi", "mpi", frozenset({"Launcher", "Worker"})),
    "PaddleJob": ("paddle", "paddle", frozenset({"Master", "Worker"})),
    "JAXJob": ("jax", "jax", frozenset({"Worker"})),
}
"""kind: what the field of its replica specs begins with, its main container, its replica types."""
_CASE = frozenset(
    "name kind kinds steps admit update replicas restart run template spec rawspec meta jobname tags".split()
)


@dataclass(frozen=True)
class Step:
    """What is done, and what may be seen then. No `variants`: it is done and not compared."""

    do: Mapping[str, Json]
    variants: tuple[Json, ...] = ()
    events: tuple[str, ...] = ()
    maybe: tuple[str, ...] = ()

    def json(self) -> Json:
        found: dict[str, Json] = {"do": self.do}
        if self.variants:
            found |= {"variants": list(self.variants), "events": list(self.events)}
            found |= {"maybe": list(self.maybe)} if self.maybe else {}
        return found


@dataclass(frozen=True)
class Case:
    family: str
    kind: str
    name: str
    steps: tuple[Step, ...]
    tags: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.family} / {self.kind} / {self.name}"

    @property
    def field(self) -> str:
        return SHAPES[self.kind][0] + "ReplicaSpecs"

    @property
    def main(self) -> str:
        return SHAPES[self.kind][1]

    def json(self) -> Json:
        tags = {"tags": list(self.tags)} if self.tags else {}
        steps = [step.json() for step in self.steps]
        return {"family": self.family, "name": self.name, "kind": self.kind, **tags, "steps": steps}


def load(path: Path) -> list[Case]:
    """The cases of a file: recorded ones from JSON, written ones from YAML. A title that is used twice is an error."""
    text = path.read_text(encoding="utf-8")
    found = _recorded(json.loads(text)) if path.suffix == ".json" else list(_written(yaml.safe_load(text)))
    titles = [case.title for case in found]
    if twice := sorted({title for title in titles if titles.count(title) > 1}):
        raise ValueError(f"{path}: these cases are there twice: {twice}")
    return found


def _recorded(document: Json) -> list[Case]:
    def step(given: Json) -> Step:
        if unknown := set(given) - {"do", "variants", "events", "maybe"}:
            raise ValueError(f"a recorded step has no {sorted(unknown)}")
        lists = {key: tuple(given.get(key, ())) for key in ("variants", "events", "maybe")}
        return Step(given["do"], **lists)

    return [
        Case(c["family"], c["kind"], c["name"], tuple(map(step, c["steps"])), tuple(c.get("tags", ())))
        for c in document["cases"]
    ]


def _written(document: Json) -> Iterator[Case]:
    for family, cases in document.items():
        for case in cases:
            if unknown := set(case) - _CASE:
                raise ValueError(f"case {case.get('name')}: a case has no {sorted(unknown)}")
            for kind in case.get("kinds") or [case["kind"]]:
                given = {**case, "kind": kind}
                steps = tuple(Step(do) for do in _steps(given))
                yield Case(family, kind, case["name"], steps, tuple(case.get("tags", ())))


def _steps(case: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    if case.get("admit"):
        changed = {"update": manifest({**case, **case["update"]})} if "update" in case else {}
        yield {"admit": manifest(case), **changed}
        return
    for step in case["steps"]:
        yield {verb: manifest({**case, **(how or {})}) if verb == "create" else how for verb, how in step.items()}


def manifest(case: Mapping[str, Json]) -> Json:
    """The job of a case that is written short."""
    metadata = {"name": case.get("jobname", "job"), **(case.get("meta") or {})}
    spec = copy.deepcopy(case["rawspec"]) if "rawspec" in case else _spec(case)
    return {"apiVersion": "kubeflow.org/v1", "kind": case["kind"], "metadata": metadata, "spec": spec}


def _spec(case: Mapping[str, Json]) -> Json:
    field, main, types = SHAPES[case["kind"]]
    replicas = {}
    for type_, count in (case.get("replicas") or {}).items():
        if "kinds" in case and type_ not in types:
            continue  # one case for many kinds names the types of them all
        template: Json = {"spec": {"containers": [{"name": main, "image": "img"}]}}
        for key in ("*", type_):
            template = merged(template, (case.get("template") or {}).get(key))
        restart = case.get("restart")
        policy = restart.get(type_) if isinstance(restart, dict) else restart
        replicas[type_] = {
            **({} if count is None else {"replicas": count}),
            **({"restartPolicy": policy} if policy else {}),
            "template": template,
        }
    spec = {f"{field}ReplicaSpecs": replicas}
    if case.get("run") is not None:
        spec["runPolicy"] = case["run"]
    return merged(spec, case.get("spec"))


def merged(value: Json, change: Json) -> Json:
    """RFC 7386: maps are merged, null removes, everything else is replaced."""
    if not isinstance(change, dict):
        return copy.deepcopy(value if change is None else change)
    found = dict(value) if isinstance(value, dict) else {}
    for key, new in change.items():
        if new is None:
            found.pop(key, None)
        else:
            both_maps = isinstance(new, dict) and isinstance(found.get(key), dict)
            found[key] = merged(found[key], new) if both_maps else copy.deepcopy(new)
    return found
