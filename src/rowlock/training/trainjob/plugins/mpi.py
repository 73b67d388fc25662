"""MPI (DeepSpeed, MLX): a launcher that reaches the nodes by SSH, with a key and a hostfile created for the job."""

from __future__ import annotations

from typing import Any

from rowlock.training.trainjob.model import (
    LAUNCHER,
    NODE,
    Container,
    ReplicatedJob,
    TrainPlan,
    containers,
    pod_spec,
    set_variables,
    variable,
)

RESERVED = (
    "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)  # fmt: skip
SSH_VOLUME, HOSTS_VOLUME, HOSTS_DIRECTORY, HOSTS_FILE = "mpi-ssh-auth", "mpi-hostfile", "/etc/mpi", "hostfile"
MAX_CONFIG_BYTES = 1 << 20
"""Most bytes of a ConfigMap's data."""
PRIVATE_KEY, PUBLIC_KEY = "ssh-privatekey", "ssh-publickey"


class TooManyHosts(Exception):
    """The hostfile cannot be stored; the text says why."""


def secret_name(trainjob_name: str) -> str:
    return f"{trainjob_name}-mpi-ssh-auth"


def hosts_name(trainjob_name: str) -> str:
    return f"{trainjob_name}-mpi-hostfile"


def worker_count(plan: TrainPlan) -> int:
    """Number of pods of the job `node`. A launcher that also trains replaces one of them, but at least one remains."""
    return max(plan.nodes - 1, 1) if runs_launcher(plan) else plan.nodes


def runs_launcher(plan: TrainPlan) -> bool:
    """Whether the launcher also trains."""
    return bool((plan.policy.get("mpi") or {}).get("runLauncherAsNode"))


def slots(plan: TrainPlan) -> int:
    """Processes per host: the job's setting, else the runtime's; if that is 1 and a node has several GPUs, one per GPU."""
    given = (plan.trainer or {}).get("numProcPerNode")
    if given is not None:
        return int(given)
    own = int((plan.policy.get("mpi") or {}).get("numProcPerNode", 1))
    return plan.gpus() if own == 1 and plan.gpus() > 1 else own


def apply(plan: TrainPlan) -> None:
    """Add the volumes with the key and the hostfile, and OpenMPI's settings in the launcher."""
    settings = [
        variable("OMPI_MCA_orte_default_hostfile", f"{HOSTS_DIRECTORY}/{HOSTS_FILE}"),
        variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
        variable("OMPI_MCA_orte_set_default_slots", slots(plan)),
        variable("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
    ]
    for job in plan.jobs:
        if job.get("name") not in (NODE, LAUNCHER):
            continue
        _add_volume(job, _key_volume(plan.name))
        for container in containers(job, NODE):
            _add_mount(container, SSH_VOLUME, str((plan.policy.get("mpi") or {}).get("sshAuthMountPath", "/root/.ssh")))
            if job["name"] == LAUNCHER:
                _add_mount(container, HOSTS_VOLUME, HOSTS_DIRECTORY)
                set_variables(container, settings)
        if job["name"] == LAUNCHER:
            _add_volume(job, _hosts_volume(plan.name))
    for container in plan.trainer_containers():
        set_variables(container, list((plan.trainer or {}).get("env") or ()))


def host_file(plan: TrainPlan) -> str:
    """The hostfile: one line per training pod (including a launcher that trains), in the order of the spec. Raises TooManyHosts if a
    ConfigMap cannot hold it."""
    names = (NODE, LAUNCHER) if runs_launcher(plan) else (NODE,)
    jobs = [job for job in plan.jobs if job.get("name") in names]
    count = sum(job["template"]["spec"]["parallelism"] for job in jobs)
    end = f".{plan.name} slots={slots(plan)}\n"
    if count * len(f"{plan.name}-{NODE}-0-0{end}") > MAX_CONFIG_BYTES:
        raise TooManyHosts(
            f"the hostfile of {count} nodes would be larger than a ConfigMap may be ({MAX_CONFIG_BYTES} bytes): ask for fewer nodes with"
            " more processes each (numProcPerNode)"
        )
    return "".join(
        f"{plan.name}-{job['name']}-0-{index}{end}"
        for job in jobs
        for index in range(job["template"]["spec"]["parallelism"])
    )


def _add_volume(job: ReplicatedJob, volume: dict[str, Any]) -> None:
    volumes = pod_spec(job).setdefault("volumes", [])
    volumes[:] = [one for one in volumes if one.get("name") != volume["name"]] + [volume]


def _add_mount(container: Container, volume: str, path: str) -> None:
    mounts = container.setdefault("volumeMounts", [])
    if not any(one.get("mountPath") == path for one in mounts):
        mounts.append({"name": volume, "mountPath": path})


def _key_volume(trainjob_name: str) -> dict[str, Any]:
    items = [
        {"key": PRIVATE_KEY, "path": "id_rsa", "mode": 0o640},
        {"key": PUBLIC_KEY, "path": "id_rsa.pub", "mode": 0o644},
        {"key": PUBLIC_KEY, "path": "authorized_keys", "mode": 0o644},
    ]
    return {
        "name": SSH_VOLUME,
        "secret": {"secretName": secret_name(trainjob_name), "defaultMode": 0o400, "items": items},
    }


def _hosts_volume(trainjob_name: str) -> dict[str, Any]:
    items = [{"key": HOSTS_FILE, "path": HOSTS_FILE, "mode": 0o444}]
    return {"name": HOSTS_VOLUME, "configMap": {"name": hosts_name(trainjob_name), "items": items}}
