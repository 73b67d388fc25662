"""A world with the controllers of Jobs, JobSets and TrainJobs, behind the admission that they rely on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.simulation import invariants as shared
from tests.simulation import plot as common
from tests.simulation.kubelet import Kubelet
from tests.simulation.layers import invariants, plot
from tests.simulation.world import CALM, World, collectors

from rowlock import kinds, objects
from rowlock.api import Controller, Decision, Patch, View
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.objects import Key
from rowlock.scheduling.controller import Scheduler
from rowlock.storage import bootstrap
from rowlock.system.namespace_deletion import NamespaceDefaults
from rowlock.training.batch_job.controller import BatchJobController, JobPodRelease
from rowlock.training.jobset.controller import JobSetController
from rowlock.training.jobset.gangs import JobSetGroupController
from rowlock.training.trainjob.controller import TrainJobController
from rowlock.webhooks.trainer_webhooks import TrainerWebhooks

SIGTERM = 143


class EndingKubelet(Kubelet):
    """As a kubelet does: a pod that is to go has its end in its status before it is gone, since Jobs count it."""

    def decide(self, view: View, key: Key, now: float) -> Decision:
        pod = view.get(kinds.POD, *key)
        process = self._disk.processes.get(objects.uid(pod)) if pod else None
        is_going = pod is not None and objects.is_deleting(pod) and objects.phase(pod) not in shared.FINISHED
        if pod is None or not is_going or not objects.dig(pod, "spec.nodeName"):
            return super().decide(view, key, now)
        state = {"terminated": {"exitCode": SIGTERM, "reason": "Error"}}
        restarts = process.restarts if process else 0
        container = {"name": pod["spec"]["containers"][0]["name"], "restartCount": restarts, "ready": False}
        others = [c for c in objects.dig(pod, "status.conditions", ()) if c["type"] != "Ready"]
        conditions = [*others, {"type": "Ready", "status": "False"}]
        said = {"phase": "Failed", "containerStatuses": [{**container, "state": state}], "conditions": conditions}
        meta = {"uid": objects.uid(pod), "resourceVersion": str(objects.revision(pod))}
        return Decision((Patch(kinds.POD, *key, {"metadata": meta, "status": said}, subresource="status"),))


class LayeredWorld(World):
    """Its store has the API server's admission; its kubelet reports ends. Each of twice as many actors looks at twice as many writes."""

    calm_steps = 4 * CALM

    def kubelet(self) -> Controller:
        return EndingKubelet(self.disk)


def build(seed: int) -> World:
    makers: list[Callable[[], Controller]] = [
        partial(BatchJobController, declares_gangs=True),
        JobPodRelease,
        JobSetController,
        JobSetGroupController,
        partial(TrainJobController, lambda: ("private", "public")),
        NamespaceDefaults,
        Scheduler,
        *collectors(),
    ]

    def admission(clock: Callable[[], float], view: View) -> AdmissionChain:
        return AdmissionChain(view, clock, webhooks=TrainerWebhooks())

    return LayeredWorld(seed, makers, invariants.after_write, admission=admission)


def contested(seed: int) -> World:
    world = build(seed)
    world.contested, world.disk.pace = True, 5.0
    return world


def play(seed: int, world: World | None = None) -> World:
    """One world from its first day to calm. Raises Broken, or whatever a controller raises."""
    world = world or build(seed)
    common.prologue(world, bootstrap.initial_objects())
    for number in range(world.dice.choice((4, 10, 20))):
        plot.disturb(world, number)
        for _ in range(world.dice.choice((0, 20, 120))):
            if not world.step():
                world.pass_time(world.now + 10)
    plot.epilogue(world)
    world.disk.troubled = world.dice.random() < 0.5  # what fails goes on failing, up to its limits
    world.settle(2000 * world.disk.pace)
    invariants.at_calm(world)
    return world
