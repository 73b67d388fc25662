"""A store whose controllers decide after every change, one decision at a time until nothing is left to decide."""

from __future__ import annotations

from typing import Any

from tests.storage.conftest import Clock, config, counted_ids

from rowlock import errors, kinds, objects
from rowlock.api import Bind, Create, Decision, Delete, DeleteOptions, Patch, Propagation, Update
from rowlock.controllers.view.state import StoredChange
from rowlock.kinds import Kind
from rowlock.objects import Key, Object
from rowlock.storage.store import Store
from rowlock.system import registry

CM, POD, NS, EVENT = kinds.CONFIG_MAP, kinds.POD, kinds.NAMESPACE, kinds.EVENT
CLAIM = kinds.PERSISTENT_VOLUME_CLAIM


class Cluster:
    """A store whose collectors decide after every change, until they are calm."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = Store.open(clock=self.clock, new_uid=counted_ids())
        self.controllers = registry.deleting_controllers()
        self.again: dict[tuple[int, Key], float] = {}
        self.core = self.store.core
        self.create(NS, {"metadata": {"name": "default"}})

    def create(self, kind: Kind, obj: Object) -> Object:
        made = self.core.create(kind, obj)
        self.settle()
        return made

    def delete(self, kind: Kind, name: str, propagation: Propagation | None = None, namespace: str = "default") -> None:
        self.core.delete(kind, namespace, name, DeleteOptions(propagation=propagation, grace=0))
        self.settle()

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        due = [ref for ref, when in self.again.items() if when <= self.clock.now]
        for number, key in due:
            del self.again[number, key]
            self._decide(number, key)
        self.settle()

    def settle(self) -> None:
        while batch := self.core.take_staged():
            self.core.apply_committed(batch)
            self._react(batch)

    def _react(self, batch: list[StoredChange]) -> None:
        for number, controller in enumerate(self.controllers):
            concerned = {
                key: None
                for change in batch
                if change.kind in controller.kinds
                for key in controller.keys(self.store.view, change)
            }
            for key in concerned:
                self._decide(number, key)

    def _decide(self, number: int, key: Key) -> None:
        decision = self.controllers[number].decide(self.store.view, key, self.clock.now)
        if decision.requeue_after is not None:
            self.again[number, key] = self.clock.now + decision.requeue_after
        try:
            self._carry_out(decision)
        except (errors.Conflict, errors.NotFound):
            pass  # the change behind it wakes the collector again

    def _carry_out(self, decision: Decision) -> None:
        for write in decision.writes:
            match write:
                case Delete():
                    self.core.delete(write.kind, write.namespace, write.name, write.options)
                case Patch():
                    self.core.patch(
                        write.kind, Key(write.namespace, write.name), write.patch, subresource=write.subresource
                    )
                case Update():
                    self.core.update(write.kind, write.object, write.subresource)
                case Create() | Bind() | _:
                    raise AssertionError(f"a collector does not write {write}")

    def status(self, kind: Kind, name: str, status: dict[str, Any]) -> None:
        there = self.store.view.get(kind, "default", name)
        assert there is not None
        self.core.update(kind, {**there, "status": status}, "status")
        self.settle()

    def names(self, kind: Kind = CM) -> list[str]:
        return [objects.name(o) for o in self.store.view.all(kind)]


def owned(name: str, *owners: Object, **meta: Any) -> Object:
    references = [objects.owner_reference(owner) for owner in owners]
    return config(name, ownerReferences=references, **meta)
