"""PyTorchJob: a Master and Workers, or Workers alone; torchrun's PET_* variables; elastic jobs.

The Master decides; without one all Workers must succeed, or the first one in an elastic job. Every worker of a job
with a Master waits in an init container until the Master's name resolves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rowlock.kinds import AUTOSCALER, PYTORCHJOB
from rowlock.objects import Object
from rowlock.training.dependents.autoscaler import sync_autoscaler
from rowlock.training.framework import Framework
from rowlock.training.model import MASTER, WORKER, Env, GangSpec, Job, Port, Rank, env_vars
from rowlock.training.reconcile_context import ReconcileContext
from rowlock.training.replica_verdict import judge_master_or_workers

INIT_IMAGE = "alpine:3.10"
INIT_TRIES = 100
_INTEGER = re.compile(r"[+-]?[0-9]+")


def elastic_defaults(spec: Mapping[str, Any], replicas: str) -> Object:
    """Default minReplicas and maxReplicas: each to the other, else both to the number of Workers."""
    elastic = spec.get("elasticPolicy")
    if elastic is None:
        return dict(spec)
    types = {t.lower(): r or {} for t, r in (spec.get(replicas) or {}).items()}
    count = types.get("worker", {}).get("replicas")
    workers = 1 if count is None else count
    min_replicas, max_replicas = elastic.get("minReplicas"), elastic.get("maxReplicas")
    min_replicas, max_replicas = (
        (max_replicas if min_replicas is None else min_replicas),
        (min_replicas if max_replicas is None else max_replicas),
    )
    policy = {
        **elastic,
        "minReplicas": workers if min_replicas is None else min_replicas,
        "maxReplicas": workers if max_replicas is None else max_replicas,
    }
    return {**spec, "elasticPolicy": policy}


def _apply_defaults(spec: Object) -> Object:
    spec = elastic_defaults(spec, "pytorchReplicaSpecs")
    old = (spec.get("elasticPolicy") or {}).get("nProcPerNode")
    if spec.get("nprocPerNode") is None and old is None:
        spec["nprocPerNode"] = "auto"
    return spec


def _environment(rank: Rank) -> Env:
    job, per_node = rank.job, rank.job.spec.get("nprocPerNode")
    env = env_vars(("PYTHONUNBUFFERED", 1))
    if MASTER in job.replicas:
        port, address = job.port(MASTER), job.pod_name(MASTER, 0)
        rank_number = rank.index if rank.type == MASTER else rank.index + 1
        processes = _process_count(per_node)
        env += env_vars(
            ("MASTER_PORT", port),
            ("PET_MASTER_PORT", port),
            ("MASTER_ADDR", address),
            ("PET_MASTER_ADDR", address),
            ("WORLD_SIZE", job.total_replicas * processes),
            ("RANK", rank_number),
            ("PET_NODE_RANK", rank_number),
        )
    if per_node is not None:
        env += env_vars(("PET_NPROC_PER_NODE", per_node))
    elastic = job.spec.get("elasticPolicy")
    if elastic is None:
        return env + env_vars(("PET_NNODES", job.total_replicas))
    return env + _rendezvous_env(job, elastic)


def _process_count(per_node: str | None) -> int:
    """nprocPerNode as a number; words, and numbers that overflow Go's int, count as 1."""
    number = int(per_node) if per_node is not None and _INTEGER.fullmatch(per_node) else 1
    return number if -(2**63) <= number < 2**63 else 1


def _rendezvous_env(job: Job, elastic: Object) -> Env:
    options = {
        "rdzvHost": job.pod_name(WORKER, 0),
        "rdzvPort": job.port(WORKER),
        "rdzvBackend": "c10d",
        **{k: v for k, v in elastic.items() if v is not None},
    }
    env = env_vars(
        ("PET_RDZV_ENDPOINT", f"{options['rdzvHost']}:{options['rdzvPort']}"),
        ("PET_RDZV_BACKEND", options["rdzvBackend"]),
        ("PET_NNODES", f"{elastic['minReplicas']}:{elastic['maxReplicas']}"),
    )
    for name, field in (
        ("PET_MAX_RESTARTS", "maxRestarts"),
        ("PET_NPROC_PER_NODE", "nProcPerNode"),
        ("PET_RDZV_ID", "rdzvId"),
    ):
        if elastic.get(field) is not None:
            env += env_vars((name, elastic[field]))
    if elastic.get("rdzvConf"):
        pairs = (f"{c.get('key', '')}={c.get('value', '')}" for c in elastic["rdzvConf"])
        env += env_vars(("PET_RDZV_CONF", ",".join(pairs)))
    if elastic.get("standalone"):
        env += env_vars(("PET_STANDALONE", ""))  # torchrun cannot parse this, but the operator sets it
    return env


def _init_containers(rank: Rank) -> Sequence[Object]:
    if rank.type == MASTER or MASTER not in rank.job.replicas:
        return ()
    wait_script = (
        f"err=1;for i in $(seq {INIT_TRIES}); do if nslookup {rank.job.pod_name(MASTER, 0)}; then err=0 && break; fi;"
        "echo waiting for master; sleep 2; done; exit $err"
    )
    return [
        {
            "name": "init-pytorch",
            "image": INIT_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "resources": {
                "limits": {"cpu": "100m", "memory": "20Mi"},
                "requests": {"cpu": "50m", "memory": "10Mi"},
            },
            "command": ["sh", "-c", wait_script],
        }
    ]


def _is_master(rank: Rank) -> bool:
    if MASTER in rank.job.replicas:
        return rank.type == MASTER
    return rank.type == WORKER and rank.index == 0


def _update_job_status(context: ReconcileContext) -> None:
    judge_master_or_workers(context, any_worker=context.job.spec.get("elasticPolicy") is not None)


def _gang(job: Job) -> GangSpec:
    """The gang: an elastic job starts with its minimum; Master and Workers are sub-groups."""
    min_members = int((job.spec.get("elasticPolicy") or {}).get("minReplicas") or job.total_replicas)
    if job.policy.min_available is not None:
        min_members = job.policy.min_available
    masters = min(job.replicas[MASTER].count, min_members) if MASTER in job.replicas else 0
    sub_groups = (("master", masters), ("worker", min_members - masters))
    return GangSpec(min_members, tuple((name, count) for name, count in sub_groups if count > 0))


FRAMEWORK = Framework(
    kind=PYTORCHJOB,
    replicas="pytorchReplicaSpecs",
    container="pytorch",
    port=Port("pytorchjob-port", 23456),
    restart_policy="OnFailure",
    roles=(MASTER, WORKER),
    lead_roles=(MASTER,),
    update_job_status=_update_job_status,
    environment=_environment,
    is_master=_is_master,
    init_containers=_init_containers,
    apply_defaults=_apply_defaults,
    sync_other_objects=sync_autoscaler,
    has_scale_selector=True,
    gang=_gang,
    dependents=(AUTOSCALER,),
)
