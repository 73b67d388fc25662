"""Read-only kinds without stored objects.

Some are computed from other objects (Endpoints from Services and pods, definitions from the table of kinds). The others
exist on real clusters, but not here: their lists are empty, so that `kubectl get all`,
`kubectl apply --prune` and `kubectl cluster-info dump`, which request many kinds, work. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources

from rowlock.kinds import Kind


@dataclass(frozen=True, slots=True)
class ComputedKind:
    """A read-only kind, and the refusal of attempts to create or watch it."""

    kind: Kind
    refusal: str
    warning: str = ""
    """The warning in answers to reads."""


def _read_unserved_kinds() -> Iterator[ComputedKind]:
    text = resources.files("rowlock.apiserver.discovery").joinpath("unserved_kinds.txt").read_text("utf-8")
    alternative = ""
    for line in text.splitlines():
        if line.startswith("  "):
            path, name, plural, *words = line.split()
            group, _, version = path.rpartition("/")
            short = tuple(word for word in words if word not in ("all", "cluster"))
            categories = ("all",) if "all" in words else ()
            kind = Kind(group, version, name, plural, short, "cluster" not in words, frozenset(), categories)
            yield ComputedKind(kind, f"rowlock has no {name} objects: {alternative}")
        elif not line.startswith("#"):
            alternative = line


UNSERVED = tuple(_read_unserved_kinds())
_NAMES = "rowlock finds the pods of a Service by itself: {} can only be read"
ENDPOINTS = ComputedKind(
    Kind("", "v1", "Endpoints", "endpoints", ("ep",)),
    _NAMES.format("Endpoints"),
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
)
ENDPOINT_SLICES = ComputedKind(
    Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"), _NAMES.format("EndpointSlices")
)
DEFINITIONS = ComputedKind(
    Kind(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", ("crd", "crds"), False,
        categories=("api-extensions",),
    ),
    "rowlock has a fixed set of kinds: definitions can only be read",
)  # fmt: skip
BY_PATH = {
    (row.kind.group, row.kind.version, row.kind.plural): row
    for row in (*UNSERVED, ENDPOINTS, ENDPOINT_SLICES, DEFINITIONS)
}
