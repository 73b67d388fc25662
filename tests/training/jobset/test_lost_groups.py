"""A PodGroup that has lost its job goes when its last pod has gone, and no earlier; a user's stays."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.api import Change, Delete, DeleteOptions
from rowlock.controllers.view.state import State
from rowlock.kinds import POD, POD_GROUP, Kind
from rowlock.objects import Key, Object, key
from rowlock.training.jobset.lost_groups import LostGroupController
from rowlock.training.pod_group import OWNER_ANNOTATION

OWNERS = [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "u-js", "controller": True}]
GONE = [Delete(POD_GROUP, "team", "pg-js-u-js", DeleteOptions(uid="u-group"))]


def group(owners: list[Object], name: str = "pg-js-u-js", **annotations: str) -> Object:
    notes = {OWNER_ANNOTATION: "name: js\n", **annotations}
    metadata = {"name": name, "namespace": "team", "uid": "u-group", "annotations": notes, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"minMember": 1}}


def pod(name: str, phase: str, of: str | None = "pg-js-u-js") -> Object:
    metadata = {"name": name, "namespace": "team", "annotations": {"pod-group-name": of} if of else {}}
    return {"metadata": metadata, "status": {"phase": phase}}


class Seen:
    def __init__(self, *objects: tuple[Kind, Object]) -> None:
        self.view, self.controller = State(), LostGroupController()
        for kind, obj in objects:
            self.tell(kind, obj)

    def tell(self, kind: Kind, obj: Object, type_: Any = "") -> list[Any]:
        """The writes that follow a change."""
        old = self.view.get(kind, *key(obj))
        change = Change(type_ or ("Modified" if old else "Added"), self.view.revision + 1, kind, obj, old)
        self.view.apply(change)
        keys: list[Key] = list(self.controller.keys(self.view, change))
        return [write for one in keys for write in self.controller.decide(self.view, one, 0.0).writes]


def test_it_goes_at_once_where_it_has_no_pods() -> None:
    seen = Seen((POD_GROUP, group(OWNERS)))
    assert seen.tell(POD_GROUP, group([])) == GONE


@pytest.mark.parametrize(
    ("last", "type_"),
    [
        (pod("b", "Running"), "Deleted"),
        (pod("b", "Failed"), "Modified"),
        (pod("b", "Running", of=None), "Modified"),
        (pod("b", "Running", of="pg-other"), "Modified"),
    ],
    ids=["deleted", "ended", "left", "in another one"],
)
def test_it_goes_after_its_last_pod(last: Object, type_: str) -> None:
    seen = Seen((POD_GROUP, group(OWNERS)), (POD, pod("a", "Running")), (POD, pod("b", "Pending")))
    assert seen.tell(POD_GROUP, group([])) == []
    assert seen.tell(POD, pod("a", "Succeeded")) == []
    assert seen.tell(POD, last, type_) == GONE


def test_others_stay() -> None:
    own = {**group([]), "metadata": {**group([])["metadata"], "annotations": {}}}
    seen = Seen()
    assert seen.tell(POD_GROUP, group(OWNERS)) == [], "its job is there"
    assert seen.tell(POD_GROUP, own) == [], "a user has made it"
    assert seen.tell(POD_GROUP, group([], name="mine")) == []
