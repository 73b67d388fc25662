"""The planner's world follows the view for a price that does not grow with the cluster."""

from __future__ import annotations

from typing import Any

from rowlock.objects import Key
from rowlock.scheduling.snapshot_tracker import SnapshotTracker


class Unsearchable(dict[Any, Any]):
    """A table that may be asked for a key, but not be walked through."""

    def items(self) -> Any:
        raise AssertionError("every PodGroup walks through all of them: ten thousand jobs are a hundred million steps")

    __iter__ = items


def group(name: str, owner: str) -> dict[str, Any]:
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": owner, "uid": f"uid-{owner}", "controller": True}  # fmt: skip
    return {"metadata": {"namespace": "a", "name": name, "ownerReferences": [reference]}, "spec": {}}


def test_a_pod_group_is_followed_without_looking_at_the_others() -> None:
    tracker = SnapshotTracker()
    tracker.group_of_owner = Unsearchable()
    for n in range(50):
        tracker._apply_group(Key("a", f"g{n}"), group(f"g{n}", f"j{n}"), {})
    assert tracker.group_of_owner[("a", "uid-j7")] == "g7"
    tracker._apply_group(Key("a", "g7"), group("g7", "other"), {})
    assert ("a", "uid-j7") not in tracker.group_of_owner and tracker.group_of_owner[("a", "uid-other")] == "g7"
    tracker._apply_group(Key("a", "g8"), group("g8", "other"), {})
    tracker._apply_group(Key("a", "g7"), None, {})
    assert tracker.group_of_owner[("a", "uid-other")] == "g8", "another group's claim stays"
