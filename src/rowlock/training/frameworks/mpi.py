"""MPIJob: workers that sleep, and a launcher that runs mpirun in them through `kubectl exec`.

It has no Services and creates its pods in its own way (the launcher has no index; no pod is ever recreated after a failure). The launcher
decides the job's result. Its other objects are in `mpi_objects.py`.
"""

from __future__ import annotations

from rowlock.kinds import CONFIG_MAP, MPIJOB, POD, ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from rowlock.objects import FINAL_PHASES, Object, is_digits, labels, name, phase
from rowlock.training.dependents.pods import pods_per_look
from rowlock.training.dependents.replicas import count_pod, warn_restart_policy
from rowlock.training.framework import Framework
from rowlock.training.frameworks.mpi_objects import (
    is_foreign,
    launcher_name,
    launcher_pod,
    named_objects,
    record_name_conflict,
    sync_objects,
    worker_pod,
)
from rowlock.training.model import INDEX_LABEL, LAUNCHER, WORKER, Port, Rank
from rowlock.training.reconcile_context import ReconcileContext
from rowlock.training.replica_verdict import job_full_name, judge_leader, set_failed, set_restarting


def _validate(spec: Object) -> str:
    replicas = spec.get("mpiReplicaSpecs")
    if replicas is None:
        return "MPIReplicaSpecs is not valid"
    for type_, replica in sorted(replicas.items()):
        error = _replica_error(type_, replica or {})
        if error:
            return error
    return "" if LAUNCHER in replicas else "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"


def _replica_error(type_: str, replica: Object) -> str:
    containers = ((replica.get("template") or {}).get("spec") or {}).get("containers")
    if not containers:
        return f"MPIReplicaSpecs is not valid: containers definition expected in {type_}"
    if type_ not in (LAUNCHER, WORKER):
        return f"MPIReplicaType is {type_} but must be one of [{LAUNCHER} {WORKER}]"
    for container in containers:
        for field, word in (("image", "Image"), ("name", "ImageName")):
            if not container.get(field):
                return f"MPIReplicaSpec is not valid: {word} is undefined in the container of {type_}"
    if type_ == LAUNCHER and replica.get("replicas") not in (None, 1):
        return "MPIReplicaSpec is not valid: There must be only 1 launcher replica"
    return ""


def _apply_defaults(spec: Object) -> Object:
    policy = spec.get("runPolicy") or {}
    if not policy.get("cleanPodPolicy") and spec.get("cleanPodPolicy"):
        return {**spec, "runPolicy": {**policy, "cleanPodPolicy": spec["cleanPodPolicy"]}}
    return spec


def _sync_job(context: ReconcileContext) -> bool:
    job = context.job
    pods = {name(p): p for p in context.observed.pods}
    launcher = pods.get(launcher_name(job))
    if _is_name_taken(context, launcher_name(job)):
        return False
    workers: list[Object] = []
    if launcher is None or phase(launcher) not in FINAL_PHASES:
        workers = [p for p in context.pods.get("worker", []) if phase(p) == "Running"]
        if not sync_objects(context, sorted(map(name, workers))):
            return False
        remaining_workers = _sync_workers(context, pods)
        if remaining_workers is None:
            return False
        workers = remaining_workers
        if launcher is None:
            _create_launcher(context)
    _count_pods(context, launcher, workers)
    return True


def _is_name_taken(context: ReconcileContext, pod_name: str) -> bool:
    """Whether a pod of another owner has a name that the job needs; if so, write an event."""
    pod = context.observed.other_objects.get(POD, {}).get(pod_name)
    if pod is None or not is_foreign(context, pod):
        return False
    record_name_conflict(context, 'MPIJobKind "Pod"', pod)
    return True


def _sync_workers(context: ReconcileContext, pods: dict[str, Object]) -> list[Object] | None:
    """Create missing workers and delete surplus ones. Returns the remaining pods; None if a name is taken. A job without the type Worker
    keeps existing workers and ignores them."""
    worker = context.job.replicas.get(WORKER)
    if worker is None:
        return []
    for pod in context.pods.get("worker", []):
        number = labels(pod).get(INDEX_LABEL, "")
        if is_digits(number) and int(number) >= worker.count:
            context.delete(POD, pod)
    remaining_pods, room = [], pods_per_look(worker.template)
    for index in range(worker.count):
        rank = Rank(context.job, worker, index)
        if rank.name in pods:
            remaining_pods.append(pods[rank.name])
            continue
        if not room:
            continue
        room -= 1
        if _is_name_taken(context, rank.name):
            return None
        created_event = context.job_event("Normal", "SuccessfulCreatePod", f"Created worker pod: {rank.name}")
        failed_event = context.job_event(
            "Warning", "FailedCreatePod", "Created worker pod: "
        )  # as in the operator, without the name
        job_failed_event = context.job_event("Warning", "MPIJobFailed", "worker pod created failed: {error}")
        context.create(POD, worker_pod(rank), created_event, failed_event, job_failed_event)
    return remaining_pods


def _create_launcher(context: ReconcileContext) -> None:
    warn_restart_policy(context, context.job.replicas[LAUNCHER], "SettedPodTemplateRestartPolicy")
    pod = launcher_pod(Rank(context.job, context.job.replicas[LAUNCHER], 0))
    created_event = context.job_event("Normal", "MPIJobRunning", f"launcher pod created success: {name(pod)}")
    context.create(
        POD, pod, created_event, context.job_event("Warning", "MPIJobFailed", "launcher pod created failed: {error}")
    )


def _count_pods(context: ReconcileContext, launcher: Object | None, workers: list[Object]) -> None:
    """Count pods by phase. Unlike elsewhere, a running pod that is being deleted still counts as active."""
    context.counts = {type_: {"active": 0, "succeeded": 0, "failed": 0} for type_ in (LAUNCHER, WORKER)}
    for type_, pods in ((LAUNCHER, [launcher] if launcher else []), (WORKER, workers)):
        for pod in pods:
            count_pod(context.counts[type_], {"status": pod.get("status") or {}})
    _record_events(context, launcher, workers)


def _record_events(context: ReconcileContext, launcher: Object | None, workers: list[Object]) -> None:
    evicted = sum(phase(p) == "Failed" and (p.get("status") or {}).get("reason") == "Evicted" for p in workers)
    state = phase(launcher) if launcher else ""
    if state == "Succeeded":
        context.record_event("Normal", "mpijobsSucceeded", f"MPIJob {job_full_name(context)} successfully completed.")
    if launcher and state == "Failed":
        reason = launcher["status"].get("reason") or "MPIJobFailed"
        context.record_event("Warning", reason, f"MPIJob {job_full_name(context)} has failed")
    if evicted:
        context.record_event("Warning", "MPIJobEvicted", f"{evicted}/{len(workers)} workers are evicted")
    if state == "Running" and all(phase(p) == "Running" for p in workers):
        context.record_event("Normal", "MPIJobRunning", f"MPIJob {job_full_name(context)} is running")


def _update_job_status(context: ReconcileContext) -> None:
    context.set_start_time()
    for replica in context.job.replicas.values():
        if replica.type == LAUNCHER and judge_leader(context, replica):
            return
        failed = context.replica_count(replica.type, "failed")
        if failed and replica.restart_policy == "ExitCode":
            set_restarting(context, replica.type, failed)
        elif failed:
            set_failed(context, replica.type, failed, suffix="MPIJobFailed")  # the operator repeats the kind


FRAMEWORK = Framework(
    kind=MPIJOB,
    replicas="mpiReplicaSpecs",
    container="mpi",
    port=Port("mpi-port", 0),
    restart_policy="Never",
    roles=(LAUNCHER, WORKER),
    lead_roles=(LAUNCHER,),
    needs_lead=True,
    pods_are_ranks=False,
    update_job_status=_update_job_status,
    environment=lambda rank: [],
    is_master=lambda rank: rank.type == LAUNCHER,
    apply_defaults=_apply_defaults,
    any_role_case=False,
    default_counts={WORKER: 0},
    copied_metadata=("annotations",),  # the operator does not copy finalizers here
    validate=_validate,
    custom_sync=_sync_job,
    ttl_reason="SuccessfulDeleteJob",
    dependents=(CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING),
    named_objects=named_objects,
)
