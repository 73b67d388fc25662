"""What an MPIJob needs besides pods: the launcher's ServiceAccount, Role and RoleBinding, and a ConfigMap with the hostfile and two
scripts; and its pods, which mount them."""

from __future__ import annotations

from rowlock.kinds import CONFIG_MAP, POD, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, Kind
from rowlock.objects import Object, is_controlled_by, name, owner_reference
from rowlock.training.dependents.pods import build_pod
from rowlock.training.model import LAUNCHER, ROLE_LABEL, TYPE_LABEL, WORKER, Env, Job, Rank, env_vars
from rowlock.training.reconcile_context import ReconcileContext

DELIVERY_IMAGE = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
CONFIG_VOLUME, TOOL_VOLUME = "mpi-job-config", "mpi-job-kubectl"
CONFIG_MOUNT = {"name": CONFIG_VOLUME, "mountPath": "/etc/mpi"}
TOOL_MOUNT = {"name": TOOL_VOLUME, "mountPath": "/opt/kube"}
SCRIPT, READABLE = 0o555, 0o444
EXISTENCE_EVENT_NAMES: dict[Kind, str] = {
    SERVICE_ACCOUNT: "ServiceAccount",
    ROLE: "LauncherRole",
    ROLE_BINDING: "RoleBinding",
}
"""Kinds whose existence the operator reports in an event at every reconcile."""


def launcher_name(job: Job) -> str:
    """The name of the launcher's pod, Role and RoleBinding."""
    return f"{job.name}-launcher"


def account_name(job: Job) -> str:
    """The name of the launcher's ServiceAccount: the template's own, else one that is created."""
    return str((job.replicas[LAUNCHER].template.get("spec") or {}).get("serviceAccountName") or launcher_name(job))


def config_name(job: Job) -> str:
    """The name of the job's ConfigMap."""
    return f"{job.name}-config"


def slots_of(job: Job) -> int:
    """slotsPerWorker, default 1."""
    slots = job.spec.get("slotsPerWorker")
    return 1 if slots is None else int(slots)


def named_objects(job: Job) -> list[tuple[Kind, str]]:
    """Objects that an MPIJob looks up by name, because another owner may have created them."""
    launcher = launcher_name(job)
    if LAUNCHER not in job.replicas:
        return []
    return [
        *((POD, pod) for pod in (launcher, *worker_names(job))),
        (SERVICE_ACCOUNT, account_name(job)),
        (CONFIG_MAP, config_name(job)),
        (ROLE, launcher),
        (ROLE_BINDING, launcher),
    ]


def worker_names(job: Job) -> list[str]:
    """The names of the workers' pods, by index."""
    count = job.replicas[WORKER].count if WORKER in job.replicas else 0
    return [job.pod_name(WORKER, i) for i in range(count)]


def launches_on_gpu(job: Job) -> bool:
    """Whether the launcher has a GPU limit. Then it also computes: it is in the hostfile and keeps its devices."""
    containers = (job.replicas[LAUNCHER].template.get("spec") or {}).get("containers") or ()
    limits = [key for c in containers for key in ((c.get("resources") or {}).get("limits") or {})]
    return any(key.endswith(".com/gpu") or "gpu" in key for key in limits)


def is_foreign(context: ReconcileContext, obj: Object) -> bool:
    """Whether the object has another owner than this job, or none."""
    return not is_controlled_by(obj, context.job.uid)


def record_name_conflict(context: ReconcileContext, kind: str, obj: Object) -> None:
    """Write an event that an object of another owner has a name that the job needs."""
    text = f'Resource "{name(obj)}" of {kind} already exists and is not managed by MPIJob'
    context.record_event("Warning", "ErrResourceExists", text)


def sync_objects(context: ReconcileContext, running_workers: list[str]) -> bool:
    """Create or update the four objects. `running_workers`: names of running workers, for elastic Horovod. False if one of the objects has
    another owner, which only the ServiceAccount may have."""
    for kind, desired in desired_objects(context.job, running_workers):
        existing = context.observed.other_objects.get(kind, {}).get(name(desired))
        if existing is None:
            context.create(kind, desired)  # the operator writes no event if this is refused
            continue
        if kind is not SERVICE_ACCOUNT and is_foreign(context, existing):
            record_name_conflict(context, f'MPIJobKind "{kind.name}"', existing)
            return False
        if kind in EXISTENCE_EVENT_NAMES:
            context.record_event(
                "Normal", f"{EXISTENCE_EVENT_NAMES[kind]} is exist", f"{EXISTENCE_EVENT_NAMES[kind]}: {name(existing)}"
            )
        for field in ("data", "rules"):
            if field in desired and existing.get(field) != desired[field]:
                context.update(kind, {**existing, field: desired[field]})
    return True


def desired_objects(job: Job, running_workers: list[str]) -> list[tuple[Kind, Object]]:
    """The objects that the job needs besides pods, in the order of their creation.

    `running_workers`: names of pods, for `discover_hosts.sh` of elastic Horovod."""
    launcher = launcher_name(job)
    rules = [
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/exec"], "resourceNames": worker_names(job)},
    ]
    if not worker_names(job):
        rules[1].pop("resourceNames")
    subject = {"kind": "ServiceAccount", "name": account_name(job), "namespace": job.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": launcher}
    return [
        (SERVICE_ACCOUNT, _build_object(job, SERVICE_ACCOUNT, account_name(job), {})),
        (CONFIG_MAP, _build_object(job, CONFIG_MAP, config_name(job), {"data": config_data(job, running_workers)})),
        (ROLE, _build_object(job, ROLE, launcher, {"rules": rules})),
        (ROLE_BINDING, _build_object(job, ROLE_BINDING, launcher, {"subjects": [subject], "roleRef": reference})),
    ]


def _build_object(job: Job, kind: Kind, object_name: str, fields: Object) -> Object:
    metadata = {
        "name": object_name,
        "namespace": job.namespace,
        "labels": {"app": job.name},
        "ownerReferences": [owner_reference(job.object)],
    }
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **fields}


def config_data(job: Job, running_workers: list[str]) -> dict[str, str]:
    """The ConfigMap's files: mpirun's hostfile, the script that replaces ssh, and the script that lists running workers."""
    slots, main = slots_of(job), job.spec.get("mainContainer") or ""
    on_gpu = launches_on_gpu(job)
    hosts = [*([launcher_name(job)] if on_gpu else []), *worker_names(job)]
    discover_script = "#!/bin/sh" + (f"\necho {launcher_name(job)}:{slots}\n" if on_gpu else "")
    container = f" --container {main}" if main else ""
    exec_command = f'/opt/kube/kubectl exec ${{POD_NAME}}{container} -- /bin/sh -c "$*"'
    return {
        "hostfile": "".join(f"{host} slots={slots}\n" for host in hosts),
        "kubexec.sh": f"#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n{exec_command}",
        "discover_hosts.sh": discover_script + "".join(f"\necho {host}:{slots}" for host in running_workers),
    }


def _config_volume(job: Job, *items: tuple[str, int]) -> Object:
    entries = [{"key": key, "path": key, "mode": mode} for key, mode in items]
    return {"name": CONFIG_VOLUME, "configMap": {"name": config_name(job), "items": entries}}


def worker_pod(rank: Rank) -> Object:
    """A worker's pod, which sleeps until the launcher runs something in it."""
    spec = dict(rank.replica.template.get("spec") or {})
    first, *others = spec["containers"]
    if not first.get("command"):
        first = {**first, "command": ["sleep"], "args": ["365d"]}
    spec["containers"] = [{**first, "volumeMounts": [*(first.get("volumeMounts") or ()), CONFIG_MOUNT]}, *others]
    volume = _config_volume(rank.job, ("kubexec.sh", SCRIPT))
    spec |= {
        "volumes": [*(spec.get("volumes") or ()), volume],
        "restartPolicy": rank.replica.pod_restart_policy,
    }
    return build_pod(rank, rank.name, rank.labels, spec)


def launcher_pod(rank: Rank) -> Object:
    """The launcher's pod, in which mpirun finds the hostfile, and kubectl instead of ssh."""
    job, spec = rank.job, dict(rank.replica.template.get("spec") or {})
    first, *others = spec["containers"]
    mounts = [TOOL_MOUNT, CONFIG_MOUNT]
    first = {
        **first,
        "env": [*(first.get("env") or ()), *_launcher_env(job, first)],
        "volumeMounts": [*(first.get("volumeMounts") or ()), *mounts],
    }
    resources = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
    delivery_container = {
        "name": "kubectl-delivery",
        "image": DELIVERY_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": env_vars(("TARGET_DIR", "/opt/kube"), ("NAMESPACE", job.namespace)),
        "volumeMounts": mounts,
        "resources": {"limits": resources, "requests": resources},
    }
    config = _config_volume(job, ("kubexec.sh", SCRIPT), ("hostfile", READABLE), ("discover_hosts.sh", SCRIPT))
    spec |= {
        "containers": [first, *others],
        "initContainers": [*(spec.get("initContainers") or ()), delivery_container],
        "volumes": [*(spec.get("volumes") or ()), {"name": TOOL_VOLUME, "emptyDir": {}}, config],
        "restartPolicy": rank.replica.pod_restart_policy,
        "serviceAccountName": account_name(job),
    }
    labels = {**job.labels, TYPE_LABEL: "launcher", ROLE_LABEL: "master"}
    return build_pod(rank, launcher_name(job), labels, spec)


def _launcher_env(job: Job, container: Object) -> Env:
    env = env_vars(
        ("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"), ("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile")
    )
    if not launches_on_gpu(job):
        env += env_vars(("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", ""))
    own_names = {e.get("name") for e in container.get("env") or ()}
    intel = env_vars(("I_MPI_HYDRA_BOOTSTRAP", "rsh"), ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/etc/mpi/kubexec.sh"))
    return env + [e for e in intel if e["name"] not in own_names]
