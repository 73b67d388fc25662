"""A store and a scheduler, turned by hand: what the scheduler decides is written at once, and pods run when bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rowlock import api
from rowlock.kinds import NAMESPACE, NODE, POD, POD_GROUP, PYTORCHJOB, QUEUE, Kind
from rowlock.objects import Key, Object, dig, is_deleting, name, timestamp, with_field
from rowlock.scheduling.controller import SCHEDULER_KEY, Scheduler
from rowlock.storage.store import Store


@dataclass
class Bench:
    """`turn()` is one decision; `writes` what it wrote."""

    scheduler: Scheduler = field(default_factory=Scheduler)
    now: float = 1_800_000_000.0
    writes: list[api.Write] = field(default_factory=list)
    again: float | None = None
    namespace: str = "t"
    """Of the pods and gangs that are made next."""
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store.open(clock=lambda: self.now)
        self.put(NAMESPACE, "", "t")

    def put(self, kind: Kind, namespace: str, name: str, **parts: Any) -> Object:
        meta = {"name": name, **({"namespace": namespace} if namespace else {}), **parts.pop("metadata", {})}
        made = self.store.core.create(
            kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta, **parts}
        )
        self.store.commit()
        return made

    def node(self, name: str, gpus: int = 0, *, metadata: Any = None, **spec: Any) -> None:
        room = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        self.put(NODE, "", name, metadata=metadata or {}, spec=spec, status={"allocatable": room})

    def ready(self, name: str, *, yes: bool) -> None:
        """The node's kubelet, or who watches over it, says so."""
        condition = {"type": "Ready", "status": "True" if yes else "Unknown", "lastTransitionTime": timestamp(self.now)}
        self.store.core.update(NODE, with_field(self.all(NODE)[name], "status.conditions", [condition]), "status")
        self.store.commit()

    def queue(self, name: str, quota: float = -1, parent: str = "") -> None:
        spec: dict[str, Any] = {"resources": {"gpu": {"quota": quota}}}
        self.put(QUEUE, "", name, spec={**spec, **({"parentQueue": parent} if parent else {})})

    def pod(self, name: str, gpus: int = 1, *, cpu: str = "100m", queue: str = "", **meta: Any) -> Object:
        limits = {"cpu": cpu, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        marks = {"kai.scheduler/queue": queue} if queue else {}
        spec = {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}], **meta.pop("spec", {})}
        return self.put(
            POD, self.namespace, name, metadata={"labels": marks, **meta}, spec=spec, status={"phase": "Pending"}
        )

    def gang(self, name: str, pods: int, *, minimum: int = 0, queue: str = "default", gpus: int = 1) -> None:
        """A job's PodGroup and its pods, as the operator makes them."""
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": f"uid-{name}"}
        owners = {"ownerReferences": [{**owner, "controller": True}]}
        self.put(PYTORCHJOB, self.namespace, name, metadata={"uid": f"uid-{name}"}, spec={})
        spec = {"minMember": minimum or pods, "queue": queue}
        self.put(POD_GROUP, self.namespace, f"pg-{name}", metadata=owners, spec=spec)
        for i in range(pods):
            self.pod(f"{name}-{i}", gpus, ownerReferences=owners["ownerReferences"])

    def remove_gang(self, name: str) -> None:
        self.store.core.delete(POD_GROUP, "t", f"pg-{name}")
        self.store.core.delete(PYTORCHJOB, "t", name)
        for pod in self.all(POD):
            if pod.startswith(f"{name}-"):
                self.store.core.delete(POD, "t", pod, api.DeleteOptions(grace=0))
        self.store.commit()

    def all(self, kind: Kind) -> dict[str, Object]:
        return {name(o): o for o in self.store.view.all(kind)}

    def node_of(self, pod: str) -> str:
        return str(dig(self.all(POD)[pod], "spec.nodeName") or "")

    def events(self) -> list[str]:
        records = [w for w in self.writes if isinstance(w, api.Record)]
        return [f"{w.regarding['metadata']['name']} {w.reason}: {w.message}" for w in records]

    def turn(self) -> list[api.Write]:
        decision = self.scheduler.decide(self.store.view, SCHEDULER_KEY, self.now)
        self.writes, self.again = list(decision.writes), decision.requeue_after
        for write in self.writes:
            self._carry_out(write)
        self.store.commit()
        return self.writes

    def _carry_out(self, write: api.Write) -> None:
        core = self.store.core
        match write:
            case api.Bind():
                core.bind(write.namespace, write.pod, write.node, write.annotations, write.uid)
            case api.Delete():
                core.delete(write.kind, write.namespace, write.name, write.options)
            case api.Update():
                core.update(write.kind, write.object, write.subresource)
            case api.Patch():
                at = Key(write.namespace, write.name)
                core.patch(write.kind, at, write.patch, type=write.type, subresource=write.subresource)
            case api.Record():
                pass
            case _:
                raise AssertionError(f"a scheduler does not write {write}")

    def kubelet(self) -> None:
        """Bound pods run; terminating ones are gone."""
        for pod in list(self.store.view.all(POD)):
            if is_deleting(pod):
                options = api.DeleteOptions(grace=0)
                self.store.core.delete(POD, "t", name(pod), options)
            elif dig(pod, "spec.nodeName"):
                self.store.core.update(POD, with_field(pod, "status.phase", "Running"), "status")
        self.store.commit()
