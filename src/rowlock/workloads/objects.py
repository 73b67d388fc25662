"""Converts a `Submission` in a project to the job object for the operator. Pure.

The caller generates the workload's id, which is stored in a label, because the pods' environment has it (`JOB_UUID`)
before the job exists; it stays the same when the job is suspended and resumed.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from rowlock import kinds
from rowlock.objects import Object, controller_of, is_digits
from rowlock.objects import annotations as annotations_of
from rowlock.objects import labels as labels_of
from rowlock.training.model import REQUEST_ANNOTATION, WORKER
from rowlock.workloads.compute import Compute, format_number
from rowlock.workloads.frameworks import MPI, PYTORCH
from rowlock.workloads.pod_options import USER_CREDENTIAL
from rowlock.workloads.projects import Project
from rowlock.workloads.run_options.notify import NOTIFY_ANNOTATION
from rowlock.workloads.run_options.retries import HOLD_ANNOTATION, HOLD_SECONDS
from rowlock.workloads.storage.pod_storage import claim_object
from rowlock.workloads.submission import RoleSpec, Submission

WORKLOAD_ID = "rowlock.dev/workload-id"
SWEEP_LABEL = "rowlock.dev/sweep"
"""Label of a sweep's ConfigMap, and of the jobs of its runs, with its name."""
_LONGEST_PARAMETERS = 64 * 1024
SWEEP_PARAMETERS_ANNOTATION = "rowlock.dev/sweep-parameters"
"""Annotation of a job: the parameters of its run, as JSON."""
ASSETS_ANNOTATION = "rowlock.dev/assets"
"""Job annotation: the template and assets that the submit named, each with id and name."""
CREATED_BY = "rowlock.dev/created-by"
SOURCE = "rowlock.dev/source"
CATEGORY = "rowlock.dev/category"
"""Label: Run:ai's category, unless it is Train."""
COMMAND_ANNOTATION = "runai-cli-command"
CODE_ANNOTATION = "rowlock.dev/code"
"""Job annotation: the submitter's description of the code, as JSON."""
SHELL_ENVIRONMENT = "rowlock.dev/shell-environment"
"""Pod annotation: the name of the Secret with the variables of the submitting shell."""
HOME_DIRECTORY = "/home/job"
"""Mount path of a pod's home directory with `createHomeDir`."""

_REPLICA_INDEX = "metadata.labels['training.kubeflow.org/replica-index']"
_DOWNWARD = {
    "POD_INDEX": _REPLICA_INDEX,
    "POD_UUID": "metadata.uid",
    "NODE_NAME": "spec.nodeName",
}


@dataclass(frozen=True, slots=True)
class Submitter:
    """The submitting user and client, and the workload's id."""

    id: str
    user: str
    source: str = "Other"


@dataclass(frozen=True, slots=True)
class SubmitPlan:
    """The objects of a submit. They are created in this order: Secrets, which pods need at once, the job, its new claims."""

    job: Object
    secrets: Sequence[Object] = ()
    claims: Sequence[tuple[Object, bool]] = ()
    """True for claims that are deleted with the job."""

    def all_objects(self) -> list[Object]:
        """The objects as a dry run shows them, such that `kubectl create -f` takes them in this order."""
        return [*(claim for claim, _ in self.claims), *self.secrets, self.job]


def plan_submit(
    submission: Submission, project: Project, submitter: Submitter, credentials: Sequence[OwnSecret]
) -> SubmitPlan:
    """What the submit creates in its project. `credentials`: the submitter's own that it names."""
    secrets = own_secrets(submission, project, submitter.id, credentials)
    claims = claim_objects(submission, project, submitter.id)
    return SubmitPlan(to_job(submission, project, submitter), secrets, claims)


def to_job(submission: Submission, project: Project, submitter: Submitter) -> Object:
    """The job object, with the namespace and queue of the project."""
    framework = submission.framework
    replicas: dict[str, Any] = {}
    if submission.has_lead:
        replicas[framework.lead_role] = _replica(submission, submission.master, project, submitter, lead=True)
    if submission.workers:
        replicas[WORKER] = _replica(submission, submission.worker, project, submitter, lead=False)
    spec: dict[str, Any] = {"runPolicy": _run_policy(submission), framework.replicas: replicas}
    if framework is PYTORCH:
        spec |= _pytorch_fields(submission)
    if framework is MPI:
        spec["slotsPerWorker"] = submission.options.slots
    return {
        "apiVersion": framework.kind.api_version,
        "kind": framework.kind.name,
        "metadata": {
            "name": submission.name,
            "namespace": project.namespace,
            "labels": _labels(submission, project, submitter) | {WORKLOAD_ID: submitter.id},
            "annotations": _annotations(submission, submitter),
        },
        "spec": spec,
    }


@dataclass(frozen=True, slots=True)
class OwnSecret:
    """The values of one of the submitter's credentials, for the workload's own Secret."""

    credential: str
    secret_type: str
    data: Mapping[str, str]


def own_secrets(
    submission: Submission, project: Project, identity: str, credentials: Sequence[OwnSecret]
) -> list[Object]:
    """The Secrets of a submit: with the variables of the submitter's shell, with the address to which things of the job are told, and with
    the submitter's credentials."""
    contents: list[tuple[str, str, Mapping[str, str]]] = []
    if submission.shell_environment:
        contents.append((_secret_name(submission, identity), "Opaque", submission.shell_environment))
    if submission.own.notify:
        contents.append((_notify_name(submission, identity), "Opaque", submission.own.notify))
    contents += [
        (_credential_name(submission, identity, one.credential), one.secret_type, one.data) for one in credentials
    ]
    return [_own_secret(project, name, identity, kind, values) for name, kind, values in contents]


def _notify_name(submission: Submission, identity: str) -> str:
    return f"{submission.name}-notify-{identity[:8]}"


def _own_secret(project: Project, name: str, identity: str, secret_type: str, values: Mapping[str, str]) -> Object:
    labels = {"project": project.queue, WORKLOAD_ID: identity}
    data = {key: b64encode(value.encode()).decode() for key, value in values.items()}
    metadata = {"name": name, "namespace": project.namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": secret_type, "data": data}


def _credential_name(submission: Submission, identity: str, credential: str) -> str:
    return f"{submission.name}-my-{credential}-{identity[:8]}"


def _secret_name(submission: Submission, identity: str) -> str:
    """Unique per submit, because the Secret of an earlier job with this name may still exist."""
    return f"{submission.name}-environment-{identity[:8]}"


def claim_objects(submission: Submission, project: Project, identity: str) -> list[tuple[Object, bool]]:
    """The claims to create with the job, each once; True for those that are deleted with it."""
    claims = {c.name: c for role in (submission.master, submission.worker) for c in role.storage.claims}
    labels = {"project": project.queue, WORKLOAD_ID: identity}
    return [(claim_object(claim, project.namespace, labels), claim.ephemeral) for claim in claims.values()]


def _labels(submission: Submission, project: Project, submitter: Submitter) -> dict[str, str]:
    """`project` is the queue's name, because a project's name may contain characters that labels may not."""
    labels = {
        "project": project.queue,
        "release": submission.name,
        "workloadName": submission.name,
        "runai/queue": project.queue,
        "kai.scheduler/queue": project.queue,
    }
    if submitter.user:
        labels["user"] = label_value(submitter.user)
    if submission.options.priority:
        labels["priorityClassName"] = submission.options.priority
    if submission.options.category:
        labels[CATEGORY] = submission.options.category
    if submission.options.pool:
        labels["kai.scheduler/node-pool"] = submission.options.pool
    if submission.options.preemptibility:
        labels["kai.scheduler/preemptibility"] = submission.options.preemptibility
    return labels


def label_value(text: str) -> str:
    """The text converted to a valid label value: `ana@example.com` → `ana-example.com`."""
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return cleaned[:63].strip("-_.")


def _annotations(submission: Submission, submitter: Submitter) -> dict[str, str]:
    annotations = {
        REQUEST_ANNOTATION: json.dumps(submission.body, separators=(",", ":"), ensure_ascii=False),
        CREATED_BY: submitter.user,
        SOURCE: submitter.source,
        **({NOTIFY_ANNOTATION: _notify_name(submission, submitter.id)} if submission.own.notify else {}),
    }
    annotations |= submission.own.annotations()
    if submission.submit_command:
        annotations[COMMAND_ANNOTATION] = submission.submit_command
    if submission.code:
        annotations[CODE_ANNOTATION] = json.dumps(submission.code, separators=(",", ":"), ensure_ascii=False)
    if submission.assets:
        annotations[ASSETS_ANNOTATION] = json.dumps(submission.assets, separators=(",", ":"), ensure_ascii=False)
    topology = {
        "kai.scheduler/topology-required-placement": submission.options.required_topology,
        "kai.scheduler/topology-preferred-placement": submission.options.preferred_topology,
    }
    return annotations | {name: label for name, label in topology.items() if label}


def _run_policy(submission: Submission) -> dict[str, Any]:
    run = submission.options
    policy: dict[str, Any] = {"backoffLimit": run.backoff_limit}
    if run.clean_pods:
        policy["cleanPodPolicy"] = run.clean_pods
    if submission.own.is_ordered:
        policy["suspend"] = True
    if run.ttl is not None:
        policy["ttlSecondsAfterFinished"] = run.ttl
    return policy


def _pytorch_fields(submission: Submission) -> dict[str, Any]:
    run = submission.options
    fields: dict[str, Any] = {"nprocPerNode": run.nproc} if run.nproc else {}
    if run.min_replicas is not None or run.max_replicas is not None:
        max_replicas = (
            run.max_replicas if run.max_replicas is not None else max(submission.pod_count, run.min_replicas or 0)
        )
        min_replicas = run.min_replicas if run.min_replicas is not None else min(submission.pod_count, max_replicas)
        fields["elasticPolicy"] = {"minReplicas": min_replicas, "maxReplicas": max_replicas, "rdzvBackend": "c10d"}
    return fields


def _replica(
    submission: Submission, role: RoleSpec, project: Project, submitter: Submitter, *, lead: bool
) -> dict[str, Any]:
    """One entry of the replica specs. MPI's workers get no command: the launcher starts their processes."""
    idle = submission.framework is MPI and not lead
    container: dict[str, Any] = {"name": submission.framework.container, "image": image_reference(role.image)}
    if role.pull:
        container["imagePullPolicy"] = role.pull
    if role.command and not idle:
        container["command"] = list(role.command)
    if role.args and not idle:
        container["args"] = list(role.args)
    if role.working_dir:
        container["workingDir"] = role.working_dir
    container["env"] = _environment(submission, role, project, submitter)
    if submission.shell_environment:
        container["envFrom"] = [{"secretRef": {"name": _secret_name(submission, submitter.id)}}]
    container |= {
        name: True for name, on in (("stdin", role.stdin), ("stdinOnce", role.stdin_once), ("tty", role.tty)) if on
    }
    if resources := role.compute.resources():
        container["resources"] = resources
    if ports := [port for port in role.ports if port != submission.framework.port.number]:
        # Each rank has a Service with these ports and the framework's; a Service with several ports needs names.
        container["ports"] = [{"name": f"port-{port}", "containerPort": port} for port in ports]
    if role.readiness and not idle:
        container["readinessProbe"] = dict(role.readiness)
    container |= role.security.container_fields()
    return {
        "replicas": 1 if lead else submission.workers,
        "restartPolicy": role.restart or _default_policy(submission),
        "template": {
            "metadata": _pod_metadata(submission, role, project, submitter),
            "spec": _pod_spec(submission, role, container, submitter.id),
        },
    }


def _default_policy(submission: Submission) -> str:
    """The framework's restart policy; Never with a back-off limit of 0, so that no container restarts before the job fails."""
    return submission.framework.restart_policy if submission.options.backoff_limit else "Never"


def image_reference(image: str) -> str:
    """The image without leading slashes, which submits may have (`/kubeflow/…`) but references cannot."""
    return image.lstrip("/")


def _pod_metadata(submission: Submission, role: RoleSpec, project: Project, submitter: Submitter) -> dict[str, Any]:
    annotations = dict(role.annotations) | role.compute.annotations()
    if submitter.user:
        annotations["user"] = submitter.user
    if submission.submit_command:
        annotations[COMMAND_ANNOTATION] = submission.submit_command
    if submission.options.backoff_limit:
        annotations[HOLD_ANNOTATION] = str(HOLD_SECONDS)
    if submission.shell_environment:
        annotations[SHELL_ENVIRONMENT] = _secret_name(submission, submitter.id)
    return {"labels": dict(role.labels) | _labels(submission, project, submitter), "annotations": annotations}


def _pod_spec(submission: Submission, role: RoleSpec, container: dict[str, Any], identity: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [container], **role.security.pod_fields()}
    if role.node_type:
        spec["nodeSelector"] = {"run.ai/type": role.node_type}
    if role.node_affinity:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": dict(role.node_affinity)}
        spec["affinity"] = {"nodeAffinity": required}
    if role.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in role.tolerations]
    if submission.options.grace is not None:
        spec["terminationGracePeriodSeconds"] = submission.options.grace
    volumes, mounts = list(role.storage.volumes), list(role.storage.mounts)
    if role.compute.large_shm:
        volumes.append({"name": "dshm", "emptyDir": {"medium": "Memory"}})
        mounts.append({"name": "dshm", "mountPath": "/dev/shm"})
    if role.own_home:
        volumes.append({"name": "home", "emptyDir": {}})
        mounts.append({"name": "home", "mountPath": HOME_DIRECTORY})
    if volumes:
        container["volumeMounts"], spec["volumes"] = mounts, volumes
    own = [_credential_name(submission, identity, name) for name in role.pull_credentials]
    if logins := dict.fromkeys((*own, *role.pull_secrets, *submission.registries)):
        spec["imagePullSecrets"] = [{"name": name} for name in logins]
    if role.storage.copies:
        image = image_reference(role.image)
        spec["initContainers"] = [copy.init_container(image) for copy in role.storage.copies]
    return spec


def _environment(
    submission: Submission, role: RoleSpec, project: Project, submitter: Submitter
) -> list[dict[str, Any]]:
    """The container's variables; the user's come last, and replace ours of the same name."""
    own_variables = {
        "RUNAI_PROJECT": project.name,
        "RUNAI_JOB_NAME": submission.name,
        "RUNAI_JOB_UUID": submitter.id,
        "JOB_NAME": submission.name,
        "jobName": submission.name,
        "JOB_UUID": submitter.id,
        "jobUUID": submitter.id,
        "RUNAI_NUM_OF_GPUS": _gpu_count(role.compute),
    }
    if role.own_home:
        own_variables["HOME"] = HOME_DIRECTORY
    if role.compute.portion is not None:
        own_variables["GPU_PORTION"] = format_number(role.compute.portion)
    if submission.framework is MPI:
        own_variables["RUNAI_MPI_NUM_WORKERS"] = str(submission.workers)
    downward = dict(_DOWNWARD)
    if _has_unnamed_master(submission):
        own_variables |= _worker_group(submission)
        downward |= {"RANK": _REPLICA_INDEX, "PET_NODE_RANK": _REPLICA_INDEX}
    user_names = {variable["name"] for variable in role.env}
    variables: list[dict[str, Any]] = [{"name": n, "value": v} for n, v in own_variables.items() if n not in user_names]
    for name, path in downward.items():
        if name not in user_names:
            variables.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
    return variables + [_variable(variable, submission, submitter.id) for variable in role.env]


def _has_unnamed_master(submission: Submission) -> bool:
    """Whether it is a non-elastic PyTorch job without a master, for which the operator sets no MASTER_ADDR."""
    run = submission.options
    is_elastic = run.min_replicas is not None or run.max_replicas is not None  # elastic jobs use a rendezvous
    return submission.framework is PYTORCH and not submission.has_lead and not is_elastic


def _worker_group(submission: Submission) -> dict[str, str]:
    """Variables for a PyTorch job without a master: worker 0 is rank 0 and the master's address."""
    address = f"{submission.name}-{WORKER.lower()}-0"
    processes = int(submission.options.nproc) if is_digits(submission.options.nproc) else 1
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(PYTORCH.port.number),
        "WORLD_SIZE": str(submission.workers * processes),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(PYTORCH.port.number),
    }


def _variable(variable: Mapping[str, Any], submission: Submission, identity: str) -> dict[str, Any]:
    """A container's variable; the value of one from the submitter's credentials comes from the workload's own Secret."""
    use = (variable.get("valueFrom") or {}).get(USER_CREDENTIAL)
    if use is None:
        return dict(variable)
    reference = {"name": _credential_name(submission, identity, use["name"]), "key": use["key"]}
    return {"name": variable["name"], "valueFrom": {"secretKeyRef": reference}}


def _gpu_count(compute: Compute) -> str:
    return format_number(compute.gpus)


class MakerFields(TypedDict, total=False):
    """What made a job that no user made: fields of `additionalFields`."""

    cronJob: str
    sweep: str
    sweepParameters: dict[str, Any]


def maker_fields(job: Object) -> MakerFields:
    """What made the job, if it was no user: its CronJob; its sweep, and the parameters of this run ({} where users have written something
    else over them)."""
    fields: MakerFields = {}
    if made_by := cron_job_of(job):
        fields["cronJob"] = made_by
    if sweep := labels_of(job).get(SWEEP_LABEL):
        text = annotations_of(job).get(SWEEP_PARAMETERS_ANNOTATION, "")
        try:
            found = json.loads(text) if len(text) <= _LONGEST_PARAMETERS else None
        except (ValueError, RecursionError):
            found = None
        fields["sweep"] = str(sweep)
        fields["sweepParameters"] = (
            {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
        )
    return fields


def cron_job_of(job: Object) -> str:
    """The name of the CronJob that made a Job; "" for other jobs."""
    owner = controller_of(job) or {}
    kind = kinds.by_api_version(str(owner.get("apiVersion", "")), str(owner.get("kind", "")))
    return str(owner.get("name", "")) if kind is kinds.CRON_JOB else ""
