"""Cordoned nodes get their taint. By equality, on a real store in memory."""

from __future__ import annotations

from rowlock.api import WRITE, Patch
from rowlock.kinds import NODE
from rowlock.objects import Key
from rowlock.storage.store import Store
from rowlock.system.taint_eviction import UNSCHEDULABLE_TAINT, UnschedulableTaint


def test_cordon_and_uncordon_move_the_taint() -> None:
    store = Store.open()
    spec = {"unschedulable": True, "taints": [{"key": "mine", "effect": "NoSchedule"}]}
    node = store.core.create(NODE, {"metadata": {"name": "n"}, "spec": spec}, WRITE)
    store.commit()
    (write,) = UnschedulableTaint().decide(store.view, Key("", "n"), 0.0).writes
    assert isinstance(write, Patch)
    assert [t["key"] for t in write.patch["spec"]["taints"]] == ["mine", UNSCHEDULABLE_TAINT]
    store.core.update(NODE, {**node, "spec": {"taints": write.patch["spec"]["taints"]}}, "", WRITE)
    store.commit()
    (write,) = UnschedulableTaint().decide(store.view, Key("", "n"), 0.0).writes
    assert isinstance(write, Patch) and [t["key"] for t in write.patch["spec"]["taints"]] == ["mine"]
