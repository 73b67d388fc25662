"""What a real cluster has and lacks for rowlock: `python -m rowlock.kube.doctor`, the other half of `rowlock doctor
--kubeconfig`.

Read-only (one job is created as a dry run, to check the operator's webhook). Prints a JSON list of findings:
`what` was looked at, `state` (ok, warn, bad), what was `found`, and the `fix`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from rowlock import kinds
from rowlock.api import Api, WriteOptions
from rowlock.errors import ApiError, Forbidden, NotFound
from rowlock.gangs.dialects import BIND_REQUEST, COSCHEDULING, DIALECTS, INSTALLED, KUEUE, VOLCANO
from rowlock.kinds import Kind
from rowlock.kube.client import Kube
from rowlock.kube.install.installed_parts import Answer, ask_kai_version, ask_webhooks
from rowlock.kube.installation import OPERATOR_COMMAND, has_kai, is_installed, missing_kinds
from rowlock.kube.rate_limit import Limits
from rowlock.kube.rights import SCHEDULER_LEASE, SWEEPS_ROLE, missing_rights, roles_of
from rowlock.objects import (
    FINAL_PHASES,
    Object,
    controller_of,
    dig,
    is_condition_true,
    is_deleting,
    labels,
    name,
    namespace,
    phase,
    seconds,
    uid,
)
from rowlock.objects import annotations as annotations_of
from rowlock.scheduling.model.from_objects import NAMESPACE_QUEUE_LABEL, QUEUE_LABELS, parse_node
from rowlock.scheduling.model.pod_requests import pod_shape
from rowlock.scheduling.volume_topology import STORAGE_CLASS
from rowlock.workloads.projects import PROJECT_ANNOTATION
from rowlock.workloads.submission import PRIORITIES

RUNTIME_CLASS = Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", (), False)
ADMISSION_POLICY = Kind(
    "admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", (), False
)
POLICY_BINDING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    (),
    False,
)
QUEUE_NAMING_RESOURCES = ("pods", "podgroups", "pytorchjobs")
"""Resources whose objects can name a queue; pytorchjobs stand for all kinds of jobs."""
GPU_LABELS = ("nvidia.com/gpu.product", "nvidia.com/gpu.memory")
DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
MANIFESTS_COMMAND = "rowlock manifests | kubectl apply -f -"
MAX_SKEW_S = 5.0
"""Maximum difference of the two clocks in seconds that does not distort ages and deadlines."""


class ClusterFinding(msgspec.Struct, frozen=True):
    """One line of the report: `state` is ok, warn or bad; `fix` is "" when there is nothing to do."""

    what: str
    state: str
    found: str
    fix: str = ""


async def diagnose(api: Api, scheduler: str, clock: Callable[[], float] = time.time) -> list[ClusterFinding]:
    """All findings, in the order in which to fix them. Raises ApiError if the cluster does not answer."""
    await api.list(kinds.NAMESPACE, limit=1)
    checks: tuple[tuple[str, Awaitable[ClusterFinding]], ...] = (
        ("kinds of jobs", check_job_kinds(api)),
        ("training operator", check_operator(api, clock)),
        ("kinds of queues", check_scheduling_kinds(api, scheduler)),
        ("scheduler", check_scheduler(api, scheduler, clock)),
        ("version of KAI", check_part("version of KAI", ask_kai_version(api))),
        ("webhooks", check_part("webhooks", ask_webhooks(api))),
        ("rights", check_rights(api, scheduler)),
        ("nodes", check_nodes(api)),
        ("runtime class", check_runtime_class(api)),
        ("storage", check_storage(api, scheduler)),
        ("priority classes", check_priority_classes(api)),
        ("queue names", check_queue_names(api)),
        ("leftovers", check_leftovers(api)),
    )
    return [await _finding_of(what, check) for what, check in checks]


async def _finding_of(what: str, check: Awaitable[ClusterFinding]) -> ClusterFinding:
    """Run a check; missing rights and missing kinds become findings."""
    try:
        return await check
    except Forbidden as error:
        return ClusterFinding(
            what, "warn", error.message, f"give these credentials the rights of `{MANIFESTS_COMMAND}`"
        )
    except ApiError as error:
        return ClusterFinding(what, "warn", error.message, "the cluster did not answer: try again, or ask who runs it")


async def check_job_kinds(api: Api) -> ClusterFinding:
    missing = await missing_kinds(api, kinds.JOBS)
    if not missing:
        return ClusterFinding("kinds of jobs", "ok", f"all {len(kinds.JOBS)} of kubeflow.org")
    names = ", ".join(kind.resource for kind in missing)
    state = "bad" if len(missing) == len(kinds.JOBS) else "warn"
    return ClusterFinding(
        "kinds of jobs", state, f"not served: {names}", f"install Kubeflow's training operator: `{OPERATOR_COMMAND}`"
    )


async def check_operator(api: Api, clock: Callable[[], float]) -> ClusterFinding:
    """Create a job as a dry run: this checks whether the operator's webhook answers, and the server's clock."""
    if await missing_kinds(api, (kinds.PYTORCHJOB,)):
        return ClusterFinding("training operator", "bad", "no PyTorchJob", f"install it: `{OPERATOR_COMMAND}`")
    try:
        admitted = await api.create(kinds.PYTORCHJOB, _sample_job(), options=WriteOptions(dry_run=True))
    except ApiError as error:
        if "webhook" not in error.message:
            raise
        fix = "look at the operator's pods: `kubectl get pods -n kubeflow`; while its webhook is down, no job can be submitted"
        return ClusterFinding("training operator", "bad", error.message, fix)
    skew = seconds(dig(admitted, "metadata.creationTimestamp")) - clock()
    if abs(skew) > MAX_SKEW_S:
        fix = "set both clocks by NTP: until then ages and deadlines are wrong by as much"
        return ClusterFinding("clock", "warn", f"the cluster's clock differs by {skew:+.0f} s", fix)
    return ClusterFinding("training operator", "ok", "a job is admitted (dry run)")


def _sample_job() -> Object:
    container = {"name": "pytorch", "image": "rowlock.dev/doctor"}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    metadata = {"generateName": "rowlock-doctor-", "namespace": "default"}
    spec = {"pytorchReplicaSpecs": {"Master": replica}}
    return {"apiVersion": kinds.PYTORCHJOB.api_version, "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


async def check_scheduling_kinds(api: Api, scheduler: str) -> ClusterFinding:
    missing = await missing_kinds(api, (kinds.QUEUE, kinds.POD_GROUP))
    if not missing:
        return ClusterFinding("kinds of queues", "ok", "Queue and PodGroup of scheduling.run.ai")
    names = ", ".join(kind.resource for kind in missing)
    fix = (
        "install KAI Scheduler, which brings them"
        if scheduler == "kai"
        else f"`{MANIFESTS_COMMAND}`, or `rowlock up --install-crds`"
    )
    return ClusterFinding("kinds of queues", "bad", f"not served: {names}", fix)


async def check_scheduler(api: Api, scheduler: str, clock: Callable[[], float]) -> ClusterFinding:
    """Which scheduler places pods: KAI by its kinds, rowlock's by its Lease."""
    kai = await has_kai(api)
    if kai and scheduler == "own":
        return ClusterFinding(
            "scheduler", "bad", "KAI Scheduler is installed", "leave out --scheduler own: two gang schedulers race"
        )
    if kai:
        return ClusterFinding("scheduler", "ok", "KAI Scheduler")
    if scheduler == "kai":
        return ClusterFinding(
            "scheduler", "bad", f"no {BIND_REQUEST.resource}", "install KAI Scheduler, or use --scheduler own"
        )
    if scheduler in ("auto", VOLCANO.name, KUEUE.name, COSCHEDULING.name):
        for dialect in INSTALLED:
            if await is_installed(api, dialect) and scheduler in ("auto", dialect.name):
                return ClusterFinding("scheduler", "ok", f"{dialect.title}: {dialect.lost}")
        if scheduler != "auto":
            fix = "install it, or use --scheduler own"
            return ClusterFinding("scheduler", "bad", f"{DIALECTS[scheduler].title} is not installed", fix)
    holder = await _lease_holder(api, clock())
    if holder:
        return ClusterFinding("scheduler", "ok", f"rowlock's, in the process {holder}")
    unseen = " (these credentials may not see whether KAI is there)" if kai is None else ""
    fix = "start rowlock's scheduler: `rowlock up --kubeconfig FILE --scheduler own`; without it pods start one by one"
    return ClusterFinding("scheduler", "warn", f"no gang scheduler{unseen}", fix)


async def _lease_holder(api: Api, now: float) -> str:
    """The process that leads rowlock's scheduler; "" if the Lease is missing or expired."""
    try:
        lease = await api.get(kinds.LEASE, *SCHEDULER_LEASE)
    except ApiError:
        return ""
    is_fresh = (
        now - seconds(dig(lease, "spec.renewTime")) < float(dig(lease, "spec.leaseDurationSeconds") or 0) + MAX_SKEW_S
    )
    return str(dig(lease, "spec.holderIdentity") or "") if is_fresh else ""


async def check_part(what: str, question: Awaitable[Answer]) -> ClusterFinding:
    return ClusterFinding(what, *await question)


async def check_rights(api: Api, scheduler: str) -> ClusterFinding:
    roles = roles_of(scheduler)
    of_sweeps = roles.pop(SWEEPS_ROLE, ())
    missing = await missing_rights(api, [rule for rules in roles.values() for rule in rules])
    fix = f"`{MANIFESTS_COMMAND}` makes a service account that has them (docs/kubernetes.md, Rights)"
    if missing:
        return ClusterFinding("rights", "bad", f"not allowed: {', '.join(missing)}", fix)
    if missing := await missing_rights(api, of_sweeps):
        return ClusterFinding("rights", "warn", f"no sweeps; not allowed: {', '.join(missing)}", fix)
    return ClusterFinding("rights", "ok", "all that `rowlock manifests` lists")


async def check_nodes(api: Api) -> ClusterFinding:
    objects = (await api.list(kinds.NODE)).items
    nodes = [parse_node(node) for node in objects]
    ready = [node for node in nodes if node.ready and not node.unschedulable]
    gpus = sum(node.gpus for node in ready)
    found = f"{len(ready)} of {len(nodes)} ready, {gpus} GPUs"
    if not ready:
        return ClusterFinding("nodes", "bad", found, "no pod can start: `kubectl describe nodes` says why")
    if not gpus:
        return ClusterFinding("nodes", "warn", found, "for GPUs install NVIDIA's GPU operator (or its device plugin)")
    unlabelled = [
        name(node)
        for node in objects
        if parse_node(node).gpus and not all(label in labels(node) for label in GPU_LABELS)
    ]
    if unlabelled:
        fix = f"shares by memory need the labels {' and '.join(GPU_LABELS)}: install NVIDIA's GPU feature discovery"
        return ClusterFinding(
            "nodes", "warn", f"{found}; without labels of their GPUs: {', '.join(unlabelled[:5])}", fix
        )
    return ClusterFinding("nodes", "ok", found)


async def check_runtime_class(api: Api) -> ClusterFinding:
    """KAI puts `runtimeClassName: nvidia` on every pod with a GPU."""
    found = {name(item) for item in (await api.list(RUNTIME_CLASS)).items}
    if "nvidia" in found or not await has_kai(api):
        return ClusterFinding(
            "runtime class", "ok", "nvidia" if "nvidia" in found else "not needed without KAI Scheduler"
        )
    fix = 'install NVIDIA\'s GPU operator, or KAI with admission.gpuPodRuntimeClassName="": until then every pod with a GPU is refused'
    return ClusterFinding("runtime class", "bad", "KAI Scheduler is there, the RuntimeClass nvidia is not", fix)


async def check_storage(api: Api, scheduler: str) -> ClusterFinding:
    classes = (await api.list(STORAGE_CLASS)).items
    default = next((item for item in classes if annotations_of(item).get(DEFAULT_CLASS_ANNOTATION) == "true"), None)
    if default is None:
        fix = "new volumes must name a storage class, or mark one as the default"
        return ClusterFinding("storage", "warn", f"{len(classes)} storage classes, none is the default", fix)
    if scheduler == "own" and default.get("volumeBindingMode") == "WaitForFirstConsumer":
        fix = "a new volume is made where the first pod runs: for jobs of several nodes name a class whose volumes all nodes can mount"
        return ClusterFinding("storage", "warn", f"{name(default)} waits for the first pod", fix)
    return ClusterFinding("storage", "ok", f"{name(default)} is the default class")


async def check_priority_classes(api: Api) -> ClusterFinding:
    missing = []
    for priority_class in PRIORITIES:
        try:
            await api.get(kinds.PRIORITY_CLASS, "", priority_class)
        except NotFound:
            missing.append(priority_class)
    if not missing:
        return ClusterFinding("priority classes", "ok", "Run:ai's are there")
    return ClusterFinding(
        "priority classes",
        "warn",
        f"missing: {', '.join(missing)}",
        f"`{MANIFESTS_COMMAND}`: jobs with such a priority are refused until then",
    )


async def check_queue_names(api: Api) -> ClusterFinding:
    """Whether the cluster's policies keep jobs of one project from naming another project's queue: rowlock is not in their path."""
    projects = [each for each in (await api.list(kinds.NAMESPACE)).items if labels(each).get(NAMESPACE_QUEUE_LABEL)]
    if len(projects) < 2:
        return ClusterFinding("queue names", "ok", f"{len(projects)} project: there is no queue of others to name")
    denying = {
        dig(binding, "spec.policyName")
        for binding in (await api.list(POLICY_BINDING)).items
        if "Deny" in (dig(binding, "spec.validationActions") or ())
    }
    policies = [
        policy
        for policy in (await api.list(ADMISSION_POLICY)).items
        if name(policy) in denying and _reads_queue_label(policy)
    ]
    held = {resource for policy in policies for resource in _matched_resources(policy)}
    missing = [] if "*" in held else [resource for resource in QUEUE_NAMING_RESOURCES if resource not in held]
    if policies and not missing:
        return ClusterFinding("queue names", "ok", f"held by {', '.join(sorted(map(name, policies)))}")
    found = f"{len(projects)} projects, and {'no ValidatingAdmissionPolicy' if not policies else 'none for ' + ', '.join(missing)}"
    fix = (
        "who may create jobs in one project may name the queue of another and use its GPUs: bind a ValidatingAdmissionPolicy (Deny) on jobs,"
        f" pods and PodGroups that holds {' and '.join(QUEUE_LABELS)} to the label {NAMESPACE_QUEUE_LABEL} of the namespace; what Kyverno"
        " or Gatekeeper holds is not seen here (docs/kubernetes.md)"
    )
    return ClusterFinding("queue names", "warn", found, fix)


async def check_leftovers(api: Api) -> ClusterFinding:
    """Queues of projects whose namespace has gone, and pods that run on after their job has ended."""
    if await missing_kinds(api, (kinds.QUEUE,)):
        return ClusterFinding("leftovers", "ok", "no queues")
    used = {labels(each).get(NAMESPACE_QUEUE_LABEL) for each in (await api.list(kinds.NAMESPACE)).items}
    queues = [each for each in (await api.list(kinds.QUEUE)).items if PROJECT_ANNOTATION in labels(each)]
    lost = sorted(name(queue) for queue in queues if name(queue) not in used)
    pods = await _pods_of_ended_jobs(api)
    if not lost and not pods:
        return ClusterFinding("leftovers", "ok", "none")
    found, fixes = [], []
    if lost:
        found.append(f"queues of projects that have no namespace: {', '.join(lost[:5])}")
        fixes.append(f"`kubectl delete queues.scheduling.run.ai {' '.join(lost[:5])}`")
    if pods:
        gpus = sum(pod_shape(pod).gpus for pod in pods)
        places = sorted(f"{namespace(pod)}/{name(pod)}" for pod in pods)
        found.append(f"{len(pods)} pods of jobs that have ended run on and hold {gpus} GPUs: {', '.join(places[:5])}")
        fixes.append(
            "delete those jobs, or set `runPolicy.cleanPodPolicy: Running` on them: their operator then stops the pods"
        )
    return ClusterFinding("leftovers", "warn", "; ".join(found), "; ".join(fixes))


async def _pods_of_ended_jobs(api: Api) -> list[Object]:
    """Pods on nodes that have not ended although their job has, and are not being deleted."""
    ended: set[str] = set()
    for kind in kinds.JOBS:
        if not await missing_kinds(api, (kind,)):
            jobs = (await api.list(kind)).items
            ended |= {uid(job) for job in jobs if any(is_condition_true(job, end) for end in ("Succeeded", "Failed"))}
    if not ended:
        return []
    return [
        pod
        for pod in (await api.list(kinds.POD)).items
        if (controller_of(pod) or {}).get("uid") in ended
        and phase(pod) not in FINAL_PHASES
        and dig(pod, "spec.nodeName")
        and not is_deleting(pod)
    ]


def _reads_queue_label(policy: Object) -> bool:
    texts = [str(each.get("expression") or "") for each in dig(policy, "spec.validations") or ()]
    texts += [str(each.get("expression") or "") for each in dig(policy, "spec.variables") or ()]
    return any(label in text for label in QUEUE_LABELS for text in texts)


def _matched_resources(policy: Object) -> set[str]:
    rules = dig(policy, "spec.matchConstraints.resourceRules") or ()
    return {str(resource) for rule in rules for resource in rule.get("resources") or ()}


async def run(options: argparse.Namespace) -> list[ClusterFinding]:
    """Connect and diagnose. Raises ApiError, ValueError, KeyError or OSError if there is no usable cluster."""
    limits = Limits(qps=0, max_tries=2)
    async with Kube.connect(options.kubeconfig, options.context or None, limits=limits) as kube:
        return await diagnose(kube, options.scheduler)


def main(argv: list[str] | None = None) -> int:
    """Print the findings as JSON. Exit code 1, with a message, if the cluster cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m rowlock.kube.doctor")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--context", default="")
    parser.add_argument("--scheduler", choices=("auto", *DIALECTS), default="auto")
    options = parser.parse_args(argv)
    try:
        findings = asyncio.run(run(options))
    except ApiError as error:
        print(f"the cluster of {options.kubeconfig} cannot be used: {error.message}", file=sys.stderr)
        return 1
    except (ValueError, KeyError, OSError) as error:
        print(f"the kubeconfig {options.kubeconfig} cannot be used: {error}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(findings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
