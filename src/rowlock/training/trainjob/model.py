"""A TrainJob and the runtime it names, as its other parts read them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rowlock.objects import Object, dig, name
from rowlock.quantity import parse

STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On the template of a replicated job: which step of the training it is."""
TRAINER_STEP, DATASET_STEP, MODEL_STEP = "trainer", "dataset-initializer", "model-initializer"
NODE = "node"
"""The container that trains, and the replicated job of an MPI runtime's workers."""
LAUNCHER = "launcher"
PORT = 29500
CONTROLLER = "trainer.kubeflow.org/trainjob-controller"
COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

Container = dict[str, Any]
ReplicatedJob = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """A TrainJob on its way to a JobSet. `jobs` are copies that the steps of `jobset.py` change in place."""

    trainjob: Object
    policy: Mapping[str, Any]
    """The runtime's `mlPolicy`; empty where it has none."""
    jobs: list[ReplicatedJob]

    @property
    def name(self) -> str:
        return name(self.trainjob)

    @property
    def trainer(self) -> Mapping[str, Any] | None:
        """The job's own wishes; None where it has none, which is not the same as empty ones."""
        found = dig(self.trainjob, "spec.trainer", None)
        return found if isinstance(found, dict) else None

    @property
    def nodes(self) -> int:
        """How many nodes train, as the job or else its runtime says."""
        given = (self.trainer or {}).get("numNodes")
        return int(self.policy.get("numNodes", 1) if given is None else given)

    def step_jobs(self, step: str) -> Iterator[ReplicatedJob]:
        """The replicated jobs that are this step."""
        return (job for job in self.jobs if step_of(job) == step)

    def trainer_containers(self) -> Iterator[Container]:
        """The container `node` of each job that is the trainer step."""
        for job in self.step_jobs(TRAINER_STEP):
            yield from containers(job, NODE)

    def address(self) -> str:
        """The name by which all nodes find the first one."""
        return f"{self.name}-{NODE}-0-0.{self.name}"

    def resources(self) -> Mapping[str, Any]:
        """What a node has: what the job asks for, else what the runtime does."""
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
        """Processors of a node, whole ones, at least one."""
        resources = self.resources()
        wanted = (resources.get("requests") or {}).get("cpu", (resources.get("limits") or {}).get("cpu", 1))
        return max(1, math.ceil(parse(wanted)))


def step_of(job: Mapping[str, Any]) -> str:
    return str(dig(job, "template.metadata.labels", {}).get(STEP_LABEL) or "")


def pod_spec(job: ReplicatedJob) -> dict[str, Any]:
    """The pod spec of a replicated job, to be changed in place."""
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
    """Each in the place of one of the same name, else at the end."""
    found = list(container.get("env") or ())
    for variable in variables:
        places = [n for n, one in enumerate(found) if one["name"] == variable["name"]]
        if places:
            found[places[0]] = copy.deepcopy(variable)
        else:
            found.append(copy.deepcopy(variable))
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
