"""Advice about a job that the operator refuses, and about surprises in one that it admits.

`hint_for` adds to the operator's own message and never replaces it. Each of `job_remarks` about an admitted job says what will happen and
what to write instead. Both only inform; they decide nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator

from rowlock.kinds import MPIJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB, Kind
from rowlock.objects import Object, dig, is_digits, name
from rowlock.training.admission.shell_advice import signal_remark
from rowlock.training.defaults import parse_job
from rowlock.training.framework import Framework
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.model import CHIEF, MASTER, PS, WORKER, Job, Replica

RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
CLEAN_POD_POLICIES = ("None", "Running", "All")
MAX_SERVICE_NAME = 63
JOB_FIELDS = (
    "runPolicy", "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend",
    "managedBy", "schedulingPolicy", "minAvailable", "queue", "minResources", "priorityClass", "replicas", "template",
    "restartPolicy", "nprocPerNode", "elasticPolicy", "minReplicas", "maxReplicas", "maxRestarts", "rdzvBackend",
    "rdzvPort", "rdzvHost", "rdzvId", "rdzvConf", "successPolicy", "enableDynamicWorker", "slotsPerWorker",
    "mainContainer", "containers", "image", "command", "args", "env", "resources", "volumeMounts", "initContainers",
)  # fmt: skip

HINTS: tuple[tuple[str, str], ...] = (
    (r"\w+ReplicaSpecs\[(\w+)\]: Unsupported value: \"\w*\": supported values: (\"\w+\"(?:, \"\w+\")*)",
     "Use one of the types {1}, with a capital first letter."),
    (r"must have at least one container with name \"?(\w+)",
     "Name the training container {0}: the operator adds its variables and its port to the container of that name."),
    (r"containers\[\d+\]\.image: Required value|Image is undefined",
     "Give every container an image; `image: rowlock.dev/host` runs programs of this machine."),
    (r"\[Master\]\.replicas: Forbidden: must be 1", "Write `replicas: 1` for the Master; more pods are Workers."),
    (r"\[Master\]: Required value: must be present|Master ReplicaSpec must be present",
     "Add the type that leads the job (Master; Launcher in an MPIJob) with `replicas: 1`."),
    (r"There must be only 1 launcher", "Write `replicas: 1` for the Launcher; mpirun's ranks run in the Workers."),
    (r"replicas: Forbidden: must be at least 1", "Omit Worker for a job of one pod; to pause a job, set `suspend: true`."),
    (r"must be configured if elastic policy is used", "Elastic pods are Workers: add a Worker, or drop elasticPolicy."),
    (r"elasticPolicy\.nProcPerNode: Forbidden", 'Keep `nprocPerNode` (a string: "2"), drop elasticPolicy.nProcPerNode.'),
    (r"managedBy: Unsupported value", "Leave managedBy out, unless MultiKueue is to run the job elsewhere."),
    (r"field is immutable|queue is immutable", "Delete the job and create it again with the new value."),
    (r"DNS-1035|RFC 1123|no more than 63", "Pod names become host names: use lower case letters, digits and -, begin with a letter, "
     "and use at most 63 characters including `-worker-0`."),
    (r"more than 1 Chief or Master", "Chief and Master are one role: keep Chief."),
    (r"spec\.(\w+ReplicaSpecs)\S*: Required value|MPIReplicaSpecs is not valid$",
     "A job lists its pods by type below its ReplicaSpecs, for example `Worker: {{replicas: 2, template: …}}`."),
    (r"containers: Required value: must be specified|containers definition expected",
     "Put the pod's containers below `template.spec.containers`."),
    (r"MPIReplicaType is (\w+)", "An MPIJob has the types Launcher and Worker."),
    (r"replicas: Invalid value", "`replicas` is a whole number of pods, not below 0, without quotes."),
    (r"in body must be of type (\w+)", "The field must have the type {0}. In YAML, a quoted number is a string."),
)  # fmt: skip
"""(pattern in the operator's or the API server's message, what to do); {0}, {1} are the pattern's groups."""
MAX_HINTS = 3
"""Maximum of hints for one refusal, which may name several errors."""


def hint_for(message: str) -> str:
    """What to do about a refusal; "" if its message is sufficient."""
    if unknown := re.search(r'unknown field "(?:[^"]*\.)?(\w+)(?:\[\d+\])?"', message):
        close_matches = difflib.get_close_matches(unknown[1], _field_candidates(message, unknown[1]), 1, 0.6)
        return f"Did you mean `{close_matches[0]}`?" if close_matches else "No job has such a field: remove it."
    matches = ((text, re.search(pattern, message)) for pattern, text in HINTS)
    hints = [text.format(*match.groups()) for text, match in matches if match]
    return " ".join(hints[:MAX_HINTS])


def _field_candidates(message: str, word: str) -> list[str]:
    """Known fields that `word` may be a misspelling of; for replicas only those of the kinds that the message names."""
    kinds = {kind: framework.replicas for kind, framework in FRAMEWORKS.items()}
    replicas = [own for kind, own in kinds.items() if kind.name in message] or list(kinds.values())
    return replicas if word.lower().endswith("replicaspecs") else [*JOB_FIELDS, *replicas]


def late_refusal(kind: Kind, job: Object) -> str:
    """The operator's message for a job that it would refuse only after creation, or "". (MPIJob has no webhook.)"""
    validation_error = FRAMEWORKS[kind].validate(job.get("spec") or {})
    return f"{kind.name} failed validation because {validation_error}" if validation_error else ""


def job_remarks(kind: Kind, obj: Object) -> list[str]:
    """Remarks about surprises in an admitted job."""
    framework = FRAMEWORKS[kind]
    job = parse_job(framework, obj)
    if not job.replicas:
        return ["the operator accepts a job without replicas and then never looks at it: add a type with a template"]
    texts = [text for rule in REMARK_RULES for text in rule(framework, job)]
    return list(dict.fromkeys(texts))


def _name_remarks(framework: Framework, job: Job) -> Iterator[str]:
    for replica in job.replicas.values():
        last_pod = job.pod_name(replica.type, max(replica.count - 1, 0))
        if len(last_pod) > MAX_SERVICE_NAME and framework.kind is not MPIJOB:
            max_length = MAX_SERVICE_NAME - (len(last_pod) - len(name(job.object)))
            yield (
                f"{last_pod} has {len(last_pod)} characters, but a Service name may have {MAX_SERVICE_NAME}: the operator would "
                f"try for ever to create it; the job's name may have {max_length}"
            )


def _policy_remarks(framework: Framework, job: Job) -> Iterator[str]:
    for replica in job.replicas.values():
        if replica.restart_policy not in RESTART_POLICIES:
            yield (
                f"restartPolicy {replica.restart_policy} is accepted, but no pod can be made with it: "
                f"use one of {', '.join(RESTART_POLICIES)}"
            )
        if (replica.template.get("spec") or {}).get("restartPolicy"):
            yield "the operator overwrites restartPolicy of the template: write it next to `replicas`"
        if replica.type == MASTER and replica.restart_policy == "Always":
            yield "a Master with restartPolicy Always never ends, so the job never succeeds: use OnFailure"
        if framework.kind is XGBOOSTJOB and replica.restart_policy == "OnFailure":
            yield "an XGBoostJob fails with its first failed pod, also with OnFailure: use ExitCode, which retries after signals"
    if job.policy.clean_pod_policy not in CLEAN_POD_POLICIES:
        yield f"cleanPodPolicy {job.policy.clean_pod_policy} is accepted and acts like All: use one of {', '.join(CLEAN_POD_POLICIES)}"


def _limit_remarks(framework: Framework, job: Job) -> Iterator[str]:
    limit = job.policy.backoff_limit
    if limit is not None and any(r.restart_policy == "ExitCode" for r in job.replicas.values()):
        yield "backoffLimit does not count retries with restartPolicy ExitCode, and does not end them"
    elif limit is not None:
        tolerated = max(limit - 1, 0)
        yield (
            f"backoffLimit: {limit} counts restarts of containers over all pods, and {tolerated or 'none'} of them "
            f"{'passes' if tolerated == 1 else 'pass'} before the job fails"
        )


def _rendezvous_remarks(framework: Framework, job: Job) -> Iterator[str]:
    if framework.kind is not PYTORCHJOB:
        return
    elastic = job.spec.get("elasticPolicy")
    has_address = all(_containers_mention(r, "'MASTER_ADDR'") for r in job.replicas.values())
    if MASTER not in job.replicas and elastic is None and job.total_replicas > 1 and not has_address:
        yield (
            "without a Master the ranks get no MASTER_ADDR, RANK or WORLD_SIZE, and torchrun waits for ever: "
            "add a Master, or an elasticPolicy for a rendezvous"
        )
    if elastic and elastic.get("standalone"):
        yield "standalone sets PET_STANDALONE to an empty value, which torchrun cannot parse: remove it"
    min_replicas, max_replicas = dig(elastic, "minReplicas"), dig(elastic, "maxReplicas")
    if min_replicas is not None and max_replicas is not None and min_replicas > max_replicas:
        yield f"minReplicas {min_replicas} is more than maxReplicas {max_replicas}: torchrun refuses that"
    processes = str(job.spec.get("nprocPerNode") or "")
    if (
        is_digits(processes)
        and int(processes) > 1
        and any(_containers_mention(r, "nnodes=$WORLD_SIZE") for r in job.replicas.values())
    ):
        yield "WORLD_SIZE counts processes when nprocPerNode is a number: `--nnodes=$WORLD_SIZE` asks for too many nodes"


def _containers_mention(replica: Replica, text: str) -> bool:
    return text in str((replica.template.get("spec") or {}).get("containers")).replace("{", "").replace("}", "")


def _leader_remarks(framework: Framework, job: Job) -> Iterator[str]:
    if framework.kind is TFJOB and not {CHIEF, MASTER, WORKER} & set(job.replicas):
        yield "a TFJob of servers or evaluators alone is never Running and never Succeeded: add a Worker or a Chief"
    if framework.kind is TFJOB and job.policy.clean_pod_policy == "None" and PS in job.replicas:
        yield "parameter servers never end by themselves and stay after the job: set runPolicy.cleanPodPolicy: Running"


def _port_remarks(framework: Framework, job: Job) -> Iterator[str]:
    for type_ in job.replicas if framework.kind is not MPIJOB else ():
        ports = job.main_container(type_).get("ports") or ()
        if len(ports) > 1 and any(not port.get("name") for port in ports):
            yield (
                f"name the ports of {type_}: the operator adds {framework.port.name}, and a Service with several ports is "
                "invalid when one has no name"
            )


def _host_port_remarks(framework: Framework, job: Job) -> Iterator[str]:
    """Only one pod can use a port of a node (kube-scheduler's NodePorts)."""
    for type_, replica in job.replicas.items():
        containers = (replica.template.get("spec") or {}).get("containers") or ()
        ports = [port for container in containers for port in container.get("ports") or ()]
        numbers = sorted({str(port["hostPort"]) for port in ports if port.get("hostPort")})
        if numbers and replica.count > 1:
            yield (
                f"each of {replica.count} pods of {type_} asks for port {', '.join(numbers)} of its node (hostPort), and a node gives it "
                f"to one: with fewer than {replica.count} nodes some wait for ever"
            )


def _signal_remarks(framework: Framework, job: Job) -> Iterator[str]:
    """A shell that is process 1 of a container ignores SIGTERM, so its child is never asked to end."""
    for type_ in job.replicas:
        yield from signal_remark(job.main_container(type_), type_)


REMARK_RULES: tuple[Callable[[Framework, Job], Iterator[str]], ...] = (
    _name_remarks, _policy_remarks, _limit_remarks, _rendezvous_remarks, _leader_remarks, _port_remarks, _host_port_remarks,
    _signal_remarks,
)  # fmt: skip
