"""JAXJob: Workers only; worker 0 is the coordinator, all must succeed."""

from __future__ import annotations

from rowlock.kinds import JAXJOB
from rowlock.training.framework import Framework
from rowlock.training.model import WORKER, Env, Port, Rank, env_vars
from rowlock.training.replica_verdict import judge_master_or_workers


def _environment(rank: Rank) -> Env:
    job = rank.job
    return env_vars(
        ("PYTHONUNBUFFERED", 1),
        ("COORDINATOR_PORT", job.port(WORKER)),
        ("COORDINATOR_ADDRESS", job.pod_name(WORKER, 0)),
        ("NUM_PROCESSES", job.total_replicas),
        ("PROCESS_ID", rank.index),
    )


FRAMEWORK = Framework(
    kind=JAXJOB,
    replicas="jaxReplicaSpecs",
    container="jax",
    port=Port("jaxjob-port", 6666),
    restart_policy="Never",
    roles=(WORKER,),
    update_job_status=judge_master_or_workers,
    environment=_environment,
    is_master=lambda rank: rank.index == 0,
    respects_managed_by=False,
    has_scale_selector=True,
)
