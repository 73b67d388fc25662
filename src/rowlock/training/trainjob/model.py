"""The model of a TrainJob and its runtime that the other modules use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.objects import Object, copy_json, dig, name
from rowlock.quantity import parse

STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
"""Label on the template of a replicated job that says which step of the training it is."""
TRAINER_STEP, DATASET_STEP, MODEL_STEP = "trainer", "dataset-initializer", "model-initializer"
NODE = "node"
"""Name of the container that trains, and of the replicated job of an MPI runtime's workers."""
LAUNCHER = "launcher"
PORT = 29500
CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

Container = dict[str, Any]
ReplicatedJob = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """A TrainJob that is being turned into a JobSet. `jobs` are copies that the steps of `jobset.py` modify in place."""

    trainjob: Object
    policy: Mapping[str, Any]
    """The runtime's `mlPolicy`; {} if it has none."""
    jobs: list[ReplicatedJob]

    @property
    def name(self) -> str:
        return name(self.trainjob)

    @property
    def trainer(self) -> Mapping[str, Any] | None:
        """The job's `spec.trainer`; None if it is absent, which differs from an empty one."""
        found = dig(self.trainjob, "spec.trainer", None)
        return found if isinstance(found, dict) else None

    @property
    def nodes(self) -> int:
        """The number of training nodes, by the job or else its runtime."""
        given = (self.trainer or {}).get("numNodes")
        return int(self.policy.get("numNodes", 1) if given is None else given)

    def step_jobs(self, step: str) -> Iterator[ReplicatedJob]:
        """The replicated jobs of this step."""
        return (job for job in self.jobs if step_of(job) == step)

    def trainer_containers(self) -> Iterator[Container]:
        """The containers named `node` of the trainer step's jobs."""
        for job in self.step_jobs(TRAINER_STEP):
            yield from containers(job, NODE)

    def address(self) -> str:
        """The DNS name of the first node."""
        return f"{self.name}-{NODE}-0-0.{self.name}"

    def resources(self) -> Mapping[str, Any]:
        """The resources of a node, by the job or else its runtime."""
        own = (self.trainer or {}).get("resourcesPerNode")
        if own is not None:
            return dict(own)
        return next((dict(c.get("resources") or {}) for c in self.trainer_containers()), {})

    def gpus(self) -> int:
        """GPUs of a node, by any resource whose name has `gpu` in it."""
        for part in ("requests", "limits"):
            counts = [parse(v) for k, v in (self.resources().get(part) or {}).items() if "gpu" in k.lower()]
            if any(count > 0 for count in counts):
                return int(sum(counts))
        return 0

    def cpus(self) -> int:
        """CPUs of a node, rounded up, at least 1."""
        resources = self.resources()
        wanted = (resources.get("requests") or {}).get("cpu", (resources.get("limits") or {}).get("cpu", 1))
        return max(1, math.ceil(parse(wanted)))


def step_of(job: Mapping[str, Any]) -> str:
    return str(dig(job, "template.metadata.labels", {}).get(STEP_LABEL) or "")


def pod_spec(job: ReplicatedJob) -> dict[str, Any]:
    """The pod spec of a replicated job, which may be modified in place."""
    found: dict[str, Any] = job
    for part in ("template", "spec", "template", "spec"):
        found = found.setdefault(part, {})
    return found


def containers(job: ReplicatedJob, wanted: str, *parts: str) -> Iterator[Container]:
    """The containers of that name; `parts` may add `initContainers`."""
    for part in ("containers", *parts):
        for container in pod_spec(job).get(part) or ():
            if container.get("name") == wanted:
                yield container


def set_variables(container: Container, variables: list[dict[str, Any]]) -> None:
    """Set variables of a container: replace those of the same name in place, append the others."""
    found = list(container.get("env") or ())
    places = {one["name"]: place for place, one in reversed(list(enumerate(found)))}
    for variable in variables:
        place = places.setdefault(variable["name"], len(found))
        found[place : place + 1] = [copy_json(variable)]
    if found:
        container["env"] = found


def variable(key: str, value: object) -> dict[str, Any]:
    return {"name": key, "value": str(value)}


def index_variable(key: str) -> dict[str, Any]:
    """A variable with the rank of the pod's node."""
    return {"name": key, "valueFrom": {"fieldRef": {"fieldPath": COMPLETION_INDEX}}}


def add_port(container: Container) -> None:
    ports = container.setdefault("ports", [])
    if not any(port.get("containerPort") == PORT for port in ports):
        ports.append({"containerPort": PORT, "protocol": "TCP"})
