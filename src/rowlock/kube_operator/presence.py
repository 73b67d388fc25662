"""Whether Kubeflow's training operator works on a cluster: by its Deployment, its Lease, its webhook, or its heartbeat.

The heartbeat is a suspended job that our operators never touch. If something writes a status on it, another operator runs,
wherever it is. The job creates no pods and is deleted afterwards.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rowlock.api import Api
from rowlock.errors import AlreadyExists, ApiError, Forbidden, Internal, NotFound
from rowlock.kinds import LEASE, PYTORCHJOB, Kind
from rowlock.kube.rights import SYSTEM_NAMESPACE
from rowlock.objects import Object, dig, labels, name, namespace, seconds

DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", ("deploy",))
PROBE_LABEL = "rowlock.dev/operator-probe"
"""Label of a job that our operators ignore."""
_OPERATOR_LABEL = ("control-plane", "kubeflow-training-operator")
_LEASE_SUFFIX = ".training-operator.kubeflow.org"
_POLL_S = 0.1


async def find_kubeflow_operator(
    api: Api, process: str, patience: float, clock: Callable[[], float] = time.time
) -> str:
    """Where Kubeflow's operator was found, as the end of a sentence; "" when nothing answered within `patience` seconds.
    `process` becomes part of the probe job's name. Raises ApiError when the cluster does not answer."""
    return (
        await _find_deployment(api) or await _find_lease(api, clock()) or await _find_heartbeat(api, process, patience)
    )


async def _find_deployment(api: Api) -> str:
    key, value = _OPERATOR_LABEL
    for deployment in await _list_if_allowed(api, DEPLOYMENT):
        if labels(deployment).get(key) == value and dig(deployment, "spec.replicas", 1):
            return f"its Deployment is {namespace(deployment)}/{name(deployment)}"
    return ""


async def _find_lease(api: Api, now: float) -> str:
    for lease in await _list_if_allowed(api, LEASE):
        age = now - seconds(dig(lease, "spec.renewTime"))
        is_held = bool(dig(lease, "spec.holderIdentity")) and age < 2 * float(
            dig(lease, "spec.leaseDurationSeconds") or 0
        )
        if name(lease).endswith(_LEASE_SUFFIX) and is_held:
            return f"its Lease {namespace(lease)}/{name(lease)} is held"
    return ""


async def _list_if_allowed(api: Api, kind: Kind) -> list[Object]:
    """The objects of a kind; [] when the kind is unknown or forbidden, because the heartbeat still works."""
    try:
        return list((await api.list(kind)).items)
    except (Forbidden, NotFound):
        return []


async def _find_heartbeat(api: Api, process: str, patience: float) -> str:
    probe = probe_job(process)
    target = (PYTORCHJOB, namespace(probe), name(probe))
    try:
        await api.create(PYTORCHJOB, probe)
    except AlreadyExists:
        pass  # left by an earlier probe
    except Internal as error:  # an operator that is down for a moment will come back and take its jobs
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


def probe_job(process: str) -> Object:
    """A job that creates no pods."""
    container = {"name": "pytorch", "image": "rowlock.dev/operator-probe"}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": PYTORCHJOB.api_version,
        "kind": PYTORCHJOB.name,
        "metadata": {
            "name": f"operator-probe-{process}",
            "namespace": SYSTEM_NAMESPACE,
            "labels": {PROBE_LABEL: process},
        },
        "spec": {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": replica}},
    }
