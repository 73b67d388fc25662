"""MPIJob: workers that sleep, and a launcher that runs mpirun in them through `kubectl exec`.

It has no Services and makes its pods in its own way (`launcher` has no number; nothing is ever restarted). The
launcher decides. Its other objects are in `mpi_objects.py`.
"""

from __future__ import annotations

from rowlock.kinds import CONFIG_MAP, MPIJOB, POD, ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from rowlock.objects import Object, labels, name, phase
from rowlock.training.framework import INDEX_LABEL, Framework, Port, Rank
from rowlock.training.mpi_objects import (
    LAUNCHER,
    WORKER,
    in_the_way,
    is_foreign,
    launcher_name,
    launcher_pod,
    names,
    sync_objects,
    worker_pod,
)
from rowlock.training.replicas import overwrite_warning, tally
from rowlock.training.turn import Turn
from rowlock.training.verdict import failing, finished_by, full_name, restarting


def _validate(spec: Object) -> str:
    replicas = spec.get("mpiReplicaSpecs")
    if replicas is None:
        return "MPIReplicaSpecs is not valid"
    for type_, replica in sorted(replicas.items()):
        wrong = _wrong(type_, replica or {})
        if wrong:
            return wrong
    return "" if LAUNCHER in replicas else "MPIReplicaSpec is not valid: Master ReplicaSpec must be present"


def _wrong(type_: str, replica: Object) -> str:
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


def _defaults(spec: Object) -> Object:
    policy = spec.get("runPolicy") or {}
    if not policy.get("cleanPodPolicy") and spec.get("cleanPodPolicy"):
        return {**spec, "runPolicy": {**policy, "cleanPodPolicy": spec["cleanPodPolicy"]}}
    return spec


def _sync(turn: Turn) -> bool:
    job = turn.job
    pods = {name(p): p for p in turn.seen.pods}
    launcher = pods.get(launcher_name(job))
    if _blocked(turn, launcher_name(job)):
        return False
    workers: list[Object] = []
    if launcher is None or phase(launcher) not in ("Succeeded", "Failed"):
        workers = [p for p in turn.pods.get("worker", []) if phase(p) == "Running"]
        if not sync_objects(turn, sorted(map(name, workers))):
            return False
        staying = _sync_workers(turn, pods)
        if staying is None:
            return False
        workers = staying
        if launcher is None:
            _launch(turn)
    _count(turn, launcher, workers)
    return True


def _blocked(turn: Turn, called: str) -> bool:
    """Whether a pod of somebody else has a name that the job needs; then it is said."""
    found = turn.seen.others.get(POD, {}).get(called)
    if found is None or not is_foreign(turn, found):
        return False
    in_the_way(turn, 'MPIJobKind "Pod"', found)
    return True


def _sync_workers(turn: Turn, pods: dict[str, Object]) -> list[Object] | None:
    """Make missing workers, remove those beyond the number; the ones that stay, None when one cannot be made. A job that
    no longer speaks of workers keeps those it has, and does not look at them."""
    worker = turn.job.replicas.get(WORKER)
    if worker is None:
        return []
    for pod in turn.pods.get("worker", []):
        number = labels(pod).get(INDEX_LABEL, "")
        if number.isdecimal() and int(number) >= worker.count:
            turn.delete(POD, pod)
    stay = []
    for index in range(worker.count):
        rank = Rank(turn.job, worker, index)
        if rank.name in pods:
            stay.append(pods[rank.name])
            continue
        if _blocked(turn, rank.name):
            return None
        done = turn.record("Normal", "SuccessfulCreatePod", f"Created worker pod: {rank.name}")
        failed = turn.record("Warning", "FailedCreatePod", "Created worker pod: ")  # the operator has no name to say
        why = turn.record("Warning", "MPIJobFailed", "worker pod created failed: {error}")
        turn.create(POD, worker_pod(rank), done, failed, why)
    return stay


def _launch(turn: Turn) -> None:
    overwrite_warning(turn, turn.job.replicas[LAUNCHER], "SettedPodTemplateRestartPolicy")
    pod = launcher_pod(Rank(turn.job, turn.job.replicas[LAUNCHER], 0))
    done = turn.record("Normal", "MPIJobRunning", f"launcher pod created success: {name(pod)}")
    turn.create(POD, pod, done, turn.record("Warning", "MPIJobFailed", "launcher pod created failed: {error}"))


def _count(turn: Turn, launcher: Object | None, workers: list[Object]) -> None:
    """Unlike elsewhere, a running pod on its way out still counts as active."""
    turn.counts = {type_: {"active": 0, "succeeded": 0, "failed": 0} for type_ in (LAUNCHER, WORKER)}
    for type_, pods in ((LAUNCHER, [launcher] if launcher else []), (WORKER, workers)):
        for pod in pods:
            tally(turn.counts[type_], {"status": pod.get("status") or {}})
    _say(turn, launcher, workers)


def _say(turn: Turn, launcher: Object | None, workers: list[Object]) -> None:
    evicted = sum(phase(p) == "Failed" and (p.get("status") or {}).get("reason") == "Evicted" for p in workers)
    state = phase(launcher) if launcher else ""
    if state == "Succeeded":
        turn.say("Normal", "mpijobsSucceeded", f"MPIJob {full_name(turn)} successfully completed.")
    if launcher and state == "Failed":
        reason = launcher["status"].get("reason") or "MPIJobFailed"
        turn.say("Warning", reason, f"MPIJob {full_name(turn)} has failed")
    if evicted:
        turn.say("Warning", "MPIJobEvicted", f"{evicted}/{len(workers)} workers are evicted")
    if state == "Running" and all(phase(p) == "Running" for p in workers):
        turn.say("Normal", "MPIJobRunning", f"MPIJob {full_name(turn)} is running")


def _judge(turn: Turn) -> None:
    turn.started()
    for replica in turn.job.replicas.values():
        if replica.type == LAUNCHER and finished_by(turn, replica):
            return
        failed = turn.count(replica.type, "failed")
        if failed and replica.restart_policy == "ExitCode":
            restarting(turn, replica.type, failed)
        elif failed:
            failing(turn, replica.type, failed, word="MPIJobFailed")  # the operator writes the kind twice (Q22)


FRAMEWORK = Framework(
    kind=MPIJOB,
    replicas="mpiReplicaSpecs",
    container="mpi",
    port=Port("mpi-port", 0),
    restart_policy="Never",
    roles=(LAUNCHER, WORKER),
    judge=_judge,
    environment=lambda rank: [],
    is_master=lambda rank: rank.type == LAUNCHER,
    defaults=_defaults,
    any_case=False,
    default_counts={WORKER: 0},
    validate=_validate,
    sync=_sync,
    ttl_reason="SuccessfulDeleteJob",
    dependents=(CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING),
    named=names,
)
