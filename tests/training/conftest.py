"""A tiny world for the operator: objects in a dict, decisions carried out at once, pods moved by hand.

It knows just enough of a cluster to play the recorded scenarios: names are unique, a bound pod is deleted gracefully,
what a deleted job owns goes with it, events are texts.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from rowlock import kinds
from rowlock.api import Bind, Create, Decision, Delete, Patch, Record, Update, Write
from rowlock.controllers.view.object_table import has_ended
from rowlock.kinds import POD, SERVICE, Kind
from rowlock.objects import Key, Object, is_deleting, key, labels, meta, name, phase, timestamp, uid, with_field
from rowlock.training.controller import JobController
from rowlock.training.model import DEFAULT, Parity

NOW = 1_800_000_000.0


class Refused(Exception):
    """A write that the world does not accept; its text is the API's."""


class World:
    """Implements `View`, and carries out writes."""

    def __init__(self, *, graceful: bool = False) -> None:
        self.objects: dict[tuple[Kind, str, str], Object] = {}
        self.events: list[str] = []
        self.now = NOW
        self.graceful = graceful
        self.revision = 0
        self._uids = itertools.count(1)

    # ---------------------------------------------------------------- View

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self.objects.get((kind, namespace, name))

    def metadata(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        found = self.get(kind, namespace, name)
        return None if found is None else meta(found)

    def has_ended(self, kind: Kind, namespace: str, name: str) -> bool:
        found = self.get(kind, namespace, name)
        return found is not None and has_ended(kind, found)

    def all(self, kind: Kind, namespace: str = "") -> Iterable[Object]:
        found = [o for (k, ns, _), o in self.objects.items() if k is kind and namespace in ("", ns)]
        return sorted(found, key=key)

    def keys(self, kind: Kind, namespace: str = "") -> Iterable[Key]:
        return [key(o) for o in self.all(kind, namespace)]

    def by_owner(self, kind: Kind, uid: str) -> Iterable[Object]:
        return [o for o in self.all(kind) if any(r["uid"] == uid for r in meta(o).get("ownerReferences") or ())]

    def by_label(self, kind: Kind, namespace: str, label: str, value: str) -> Iterable[Object]:
        return [o for o in self.all(kind, namespace) if labels(o).get(label) == value]

    # ---------------------------------------------------------------- writes

    def put(self, kind: Kind, obj: Object) -> Object:
        self.revision += 1
        obj = with_field(obj, "metadata.resourceVersion", str(self.revision))
        self.objects[(kind, *key(obj))] = obj
        return obj

    def create(self, kind: Kind, obj: Object) -> Object:
        where = (kind, *key(obj))
        if where in self.objects:
            being = "object is being deleted: " if is_deleting(self.objects[where]) else ""
            raise Refused(f'{being}{kind.plural} "{name(obj)}" already exists')
        if kind is SERVICE:
            self._check_ports(obj)
        obj = with_field(copy.deepcopy(obj), "metadata.uid", f"uid-{next(self._uids)}")
        obj = with_field(obj, "metadata.creationTimestamp", timestamp(self.now))
        return self.put(kind, pod_defaults(obj) if kind is POD else obj)

    @staticmethod
    def _check_ports(service: Object) -> None:
        ports, seen = service["spec"]["ports"], set[object]()
        for i, port in enumerate(ports):
            if len(ports) > 1 and not port.get("name"):
                raise Refused(f'Service "{name(service)}" is invalid: spec.ports[{i}].name: Required value')
            if port["port"] in seen:
                number = port["port"]
                shown = f'"Name":"","Protocol":"TCP","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0'
                raise Refused(f'Service "{name(service)}" is invalid: spec.ports[{i}]: Duplicate value: {{{shown}}}')
            seen.add(port["port"])

    def delete(self, kind: Kind, namespace: str, name: str, *, now: bool = False) -> None:
        obj = self.objects.get((kind, namespace, name))
        if obj is None:
            return
        bound = kind is POD and "nodeName" in obj["spec"] and phase(obj) not in ("Succeeded", "Failed")
        if bound and self.graceful and not now:
            self.put(kind, with_field(obj, "metadata.deletionTimestamp", timestamp(self.now)))
            return
        del self.objects[(kind, namespace, name)]
        for (k, ns, n), o in list(self.objects.items()):
            if any(r["uid"] == uid(obj) for r in meta(o).get("ownerReferences") or ()):
                self.delete(k, ns, n)

    def apply(self, decision: Decision) -> bool:
        """Carry out the writes in order; False when one was refused, which ends the turn."""
        for write in decision.writes:
            try:
                self._do(write)
            except Refused as refused:
                for failed in write.failure_records if isinstance(write, Create | Update | Delete) else ():
                    self._event(failed, str(refused))
                return False
        return True

    def _do(self, write: Write) -> None:
        match write:
            case Record():
                self._event(write, "")
            case Create(kind, obj, _):
                self.create(kind, obj)
            case Update(kind, obj, _):
                assert (kind, *key(obj)) in self.objects, f"update of {kind} {name(obj)}, which is not there"
                assert (
                    obj["metadata"]["resourceVersion"] == self.objects[(kind, *key(obj))]["metadata"]["resourceVersion"]
                )
                self.put(kind, obj)
            case Patch(kind, namespace, called, patch, _, _):
                self.put(kind, merged(self.objects[(kind, namespace, called)], patch))
            case Delete(kind, namespace, called, _, _):
                self.delete(kind, namespace, called)
            case Bind():
                raise AssertionError("the operator binds nothing")

    def _event(self, record: Record, error: str) -> None:
        self.events.append(f"{record.type} {record.reason} {record.message.replace('{error}', error)}")

    # ---------------------------------------------------------------- turns

    def settle(self, controller: JobController, namespace: str, *, patient: bool = True) -> None:
        """Look at every job until nothing changes any more; `patient`: and short waits are over."""
        for _ in range(30):
            before, wait = self.revision, 60.0
            for job in list(self.all(controller.framework.kind, namespace)):
                decision = controller.decide(self, key(job), self.now)
                wait = min(wait, decision.requeue_after or wait)
                self.apply(decision)
            if self.revision == before:
                if wait > 0.2 or not patient:
                    return
                self.now += wait
        raise AssertionError("the operator does not come to rest")


def pod_defaults(pod: Object) -> Object:
    """What an API server adds to a pod, as far as anybody here looks."""
    spec = {"restartPolicy": "Always", **pod["spec"]}
    for container in spec["containers"]:
        limits = (container.get("resources") or {}).get("limits") or {}
        if limits:
            texts = {k: str(v) for k, v in limits.items()}
            requests = {**texts, **(container["resources"].get("requests") or {})}
            container["resources"] = {**container["resources"], "limits": texts, "requests": requests}
        for port in container.get("ports") or () if spec.get("hostNetwork") else ():
            port["hostPort"] = port["containerPort"]
    return {**pod, "spec": spec, "status": {"phase": "Pending"}}


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """A JSON merge patch."""
    out = dict(old)
    for k, v in patch.items():
        if v is None:
            out.pop(k, None)
        else:
            out[k] = merged(out.get(k) or {}, v) if isinstance(v, Mapping) else v
    return out


def kind_named(word: str) -> Kind:
    return next(k for k in kinds.JOBS if k.name == word)


def job_object(kind: str, spec: Object, *, called: str = "job", namespace: str = "team-a") -> Object:
    metadata = {"name": called, "namespace": namespace}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": metadata, "spec": spec}


class Play:
    """A job in a world, with a controller; what the scenarios' steps do to its pods."""

    def __init__(
        self, kind: str, *, parity: Parity = DEFAULT, graceful: bool = False, namespace: str = "team-a"
    ) -> None:
        self.world = World(graceful=graceful)
        self.controller = JobController(kind_named(kind), parity)
        self.kind, self.namespace, self.job = kind_named(kind), namespace, "job"

    def create(self, spec: Object) -> None:
        self.world.create(self.kind, job_object(self.kind.name, spec, namespace=self.namespace))

    def turn(self) -> Decision:
        decision = self.controller.decide(self.world, Key(self.namespace, self.job), self.world.now)
        self.world.apply(decision)
        return decision

    @property
    def object(self) -> Object | None:
        return self.world.get(self.kind, self.namespace, self.job)

    @property
    def status(self) -> Object:
        return (self.object or {}).get("status") or {}

    def pod(self, short: str) -> Object:
        found = self.world.get(POD, self.namespace, f"{self.job}-{short}")
        assert found is not None, f"there is no pod {self.job}-{short}"
        return found

    def set(self, short: str, status: Object) -> None:
        pod = self.pod(short)
        self.world.put(POD, {**pod, "spec": {**pod["spec"], "nodeName": "n"}, "status": {**pod["status"], **status}})

    def patch(self, patch: Object) -> None:
        assert self.object is not None
        self.world.put(self.kind, merged(self.object, patch))

    def pods(self) -> dict[str, str]:
        return {
            name(p): (phase(p) or "Pending") + "+Terminating" * is_deleting(p)
            for p in self.world.all(POD, self.namespace)
        }

    def services(self) -> list[str]:
        return [name(s) for s in self.world.all(SERVICE, self.namespace)]


@pytest.fixture
def play() -> Callable[..., Play]:
    return Play


@pytest.fixture
def world() -> World:
    return World()
