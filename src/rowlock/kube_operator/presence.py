"""Whether a cluster's own operator works: by its Deployment, its Lease, its webhook, or its heartbeat.

The heartbeat is a suspended job that our operators never touch. If something writes a status on it, another operator runs,
wherever it is. The job creates no pods and is deleted afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rowlock.api import Api
from rowlock.errors import AlreadyExists, ApiError, Forbidden, Internal, NotFound
from rowlock.kinds import JOB_SET, LEASE, PYTORCHJOB, TRAIN_JOB, Kind
from rowlock.kube.rights import SYSTEM_NAMESPACE
from rowlock.objects import Object, dig, labels, name, namespace, seconds

DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", ("deploy",))
PROBE_LABEL = "rowlock.dev/operator-probe"
"""Label of a job that our operators ignore."""
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Rival:
    """An operator that others have written, and its marks on a cluster."""

    title: str
    kind: Kind
    """The kind of the heartbeat."""
    probe_spec: Object
    """The spec of a job that it writes a status on without creating pods."""
    lease_suffix: str
    """How the name of its Lease ends."""
    labels: Collection[tuple[str, str]]
    """Labels of its Deployment: any of them is proof."""
    images: Collection[str] = ()
    """Last parts of the names of its images, for a Deployment with other labels."""

    async def find(self, api: Api, process: str, patience: float, clock: Callable[[], float] = time.time) -> str:
        """Where it was found, as the end of a sentence; "" when nothing answered within `patience` seconds. `process` becomes part of the
        probe job's name. Raises ApiError when the cluster does not answer, NotFound when it does not serve the kind."""
        return (
            await self._find_deployment(api)
            or await self._find_lease(api, clock())
            or await self._find_heartbeat(api, process, patience)
        )

    async def _find_deployment(self, api: Api) -> str:
        for deployment in await _list_if_allowed(api, DEPLOYMENT):
            if self._is_its(deployment) and dig(deployment, "spec.replicas", 1):
                return f"its Deployment is {namespace(deployment)}/{name(deployment)}"
        return ""

    def _is_its(self, deployment: Object) -> bool:
        containers = dig(deployment, "spec.template.spec.containers", None) or ()
        images = {
            str(one.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[0] for one in containers
        }
        marks = labels(deployment)
        return not images.isdisjoint(self.images) or any(marks.get(key) == value for key, value in self.labels)

    async def _find_lease(self, api: Api, now: float) -> str:
        for lease in await _list_if_allowed(api, LEASE):
            age = now - seconds(dig(lease, "spec.renewTime"))
            is_held = bool(dig(lease, "spec.holderIdentity")) and age < 2 * float(
                dig(lease, "spec.leaseDurationSeconds") or 0
            )
            if name(lease).endswith(self.lease_suffix) and is_held:
                return f"its Lease {namespace(lease)}/{name(lease)} is held"
        return ""

    async def _find_heartbeat(self, api: Api, process: str, patience: float) -> str:
        probe = self.probe(process)
        target = (self.kind, namespace(probe), name(probe))
        try:
            await api.create(self.kind, probe)
        except AlreadyExists:
            pass  # left by an earlier probe
        except (Internal, Forbidden) as error:  # an operator that is down for a moment will come back and take its jobs
            if "webhook" not in error.message:
                raise
            return f"its webhook is installed ({error.message})"
        try:
            for _ in range(max(1, round(patience / _POLL_S))):
                if dig(await api.get(*target), "status.conditions"):
                    return "it answers: it wrote a status on a job"
                await asyncio.sleep(_POLL_S)
            return ""
        finally:
            try:
                await api.delete(*target)
            except ApiError:
                pass  # the next probe reuses it

    def probe(self, process: str) -> Object:
        """A job that creates no pods."""
        metadata = {
            "name": f"operator-probe-{process}",
            "namespace": SYSTEM_NAMESPACE,
            "labels": {PROBE_LABEL: process},
        }
        kind = {"apiVersion": self.kind.api_version, "kind": self.kind.name}
        return {**kind, "metadata": metadata, "spec": self.probe_spec}


async def _list_if_allowed(api: Api, kind: Kind) -> list[Object]:
    """The objects of a kind; [] when the kind is unknown or forbidden, because the heartbeat still works."""
    try:
        return list((await api.list(kind)).items)
    except (Forbidden, NotFound):
        return []


_CONTAINER = {"name": "pytorch", "image": "rowlock.dev/operator-probe"}
_REPLICA = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [_CONTAINER]}}}
TRAINING_OPERATOR = Rival(
    "Kubeflow's training operator",
    PYTORCHJOB,
    {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": _REPLICA}},
    labels=(("control-plane", "kubeflow-training-operator"),),
    lease_suffix=".training-operator.kubeflow.org",
)
JOBSET_CONTROLLER = Rival(
    "JobSet's controller",
    JOB_SET,
    {"suspend": True, "replicatedJobs": [], "network": {"enableDNSHostnames": False}},
    labels=(
        ("app.kubernetes.io/name", "jobset"),
        ("app.kubernetes.io/part-of", "jobset"),
        ("app.kubernetes.io/created-by", "jobset"),
    ),
    images=("jobset",),
    lease_suffix=".jobset.x-k8s.io",
)
"""It says Suspended of a set without jobs."""
TRAINER = Rival(
    "Kubeflow Trainer",
    TRAIN_JOB,
    {"suspend": True, "runtimeRef": {"apiGroup": "rowlock.dev", "kind": "OperatorProbe", "name": "none"}},
    labels=(("app.kubernetes.io/name", "trainer"),),
    images=("trainer-controller-manager",),
    lease_suffix="trainer.kubeflow.org",
)
"""Its webhook refuses a kind of runtime that does not exist; without its webhook the controller says Failed."""
