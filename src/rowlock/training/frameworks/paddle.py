"""PaddleJob: Workers alone train collectively; Masters, if any, are parameter servers. Its status is judged like a PyTorchJob's."""

from __future__ import annotations

from rowlock.kinds import PADDLEJOB
from rowlock.objects import Object
from rowlock.training.framework import Framework
from rowlock.training.frameworks.pytorch import elastic_defaults
from rowlock.training.model import MASTER, WORKER, Env, Port, Rank, env_vars
from rowlock.training.replica_verdict import judge_master_or_workers


def _apply_defaults(spec: Object) -> Object:
    return elastic_defaults(spec, "paddleReplicaSpecs")


def _environment(rank: Rank) -> Env:
    job = rank.job
    leader = MASTER if MASTER in job.replicas else WORKER
    port = job.port(leader)
    env = env_vars(("PYTHONUNBUFFERED", 1), ("PADDLE_JOB_ID", job.name), ("PADDLE_NNODES", job.total_replicas))
    if rank.type == leader and rank.index == 0:
        env.append({"name": "POD_IP_DUMMY", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
        env += env_vars(("PADDLE_MASTER", f"$(POD_IP_DUMMY):{port}"))
    else:
        env += env_vars(("PADDLE_MASTER", f"{job.pod_name(leader, 0)}:{port}"))
    if MASTER in job.replicas:
        env += env_vars(("PADDLE_SERVER_NUM" if rank.type == MASTER else "PADDLE_TRAINER_NUM", 1))
    return env


FRAMEWORK = Framework(
    kind=PADDLEJOB,
    replicas="paddleReplicaSpecs",
    container="paddle",
    port=Port("master", 36543),
    restart_policy="OnFailure",
    roles=(MASTER, WORKER),
    lead_roles=(MASTER,),
    update_job_status=judge_master_or_workers,
    environment=_environment,
    is_master=lambda rank: rank.type == MASTER,
    apply_defaults=_apply_defaults,
    has_scale_selector=True,
)
