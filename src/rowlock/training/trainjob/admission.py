"""Kubeflow Trainer's webhooks: defaults of a TrainJob, and what its validating webhooks refuse, in their words.

The webhook judges a TrainJob together with its runtime. Values quoted in messages are formatted by a function of the API server, as Go
formats its structs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rowlock.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from rowlock.objects import Object, dig, labels, name, namespace, timestamp
from rowlock.training.admission.jobset import managed_by_causes
from rowlock.training.admission.webhooks import AdmissionResult
from rowlock.training.trainjob.model import DATASET_STEP, MODEL_STEP, NODE, containers, step_of
from rowlock.training.trainjob.plugins import mpi, torch, torchtune, xgboost

Printer = Callable[..., str]
"""(value, *fields) → JSON in Go's order, `fields` first."""
Find = Callable[[str, str, str], Object | None]
"""(kind, namespace or "" for a cluster-scoped one, name) → the runtime, if it exists."""

GROUP = CLUSTER_TRAINING_RUNTIME.group
UNCHECKED_LABEL, UNCHECKED = "trainer.kubeflow.org/webhook-validation", "disabled"
SUPPORT_LABEL, DEPRECATED = "trainer.kubeflow.org/support", "deprecated"
_INITIALIZER_VOLUME = "initializer"
_STEP_CONTAINERS = (DATASET_STEP, MODEL_STEP, NODE)
_POLICY_PAGE = "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"


def default_trainjob(old: Object | None, new: Object, now: float) -> Object:
    """The job with the `time` of each of its patches: when it was added or last changed. `now`: seconds since the epoch."""
    patches = dig(new, "spec.runtimePatches", None)
    if not patches:
        return new
    known = [_without_time(patch) for patch in dig(old, "spec.runtimePatches", None) or ()]
    times = [patch.get("time") for patch in dig(old, "spec.runtimePatches", None) or ()]
    timed = []
    for patch in patches:
        bare = _without_time(patch)
        time = times[known.index(bare)] if bare in known else None
        timed.append({**bare, "time": time or timestamp(now)})
    return {**new, "spec": {**new["spec"], "runtimePatches": timed}}


def _without_time(patch: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in patch.items() if key != "time"}


def runtime_of(trainjob: Object, find: Find) -> Object | None:
    """The runtime that a TrainJob refers to; None if it does not exist."""
    ref = dig(trainjob, "spec.runtimeRef", {})
    if ref.get("apiGroup") != GROUP:
        return None
    kind, wanted = str(ref.get("kind") or ""), str(ref.get("name") or "")
    if kind == CLUSTER_TRAINING_RUNTIME.name:
        return find(kind, "", wanted)
    return find(kind, namespace(trainjob), wanted) if kind == TRAINING_RUNTIME.name else None


def review_trainjob(
    old: Object | None, new: Object, find: Find, jobset: Object | None, show: Printer
) -> AdmissionResult:
    """Judge a TrainJob that is created (`old` is None) or changed. `jobset`: the JobSet of the same name, if there is one."""
    ref = dig(new, "spec.runtimeRef", {})
    kind, group = str(ref.get("kind") or ""), str(ref.get("apiGroup") or "")
    if group != GROUP or kind not in (CLUSTER_TRAINING_RUNTIME.name, TRAINING_RUNTIME.name):
        return AdmissionResult((f"unsupported runtime: {kind}.{group}" if group else f"unsupported runtime: {kind}",))
    shown = show(ref, "name", "apiGroup", "kind")
    runtime = runtime_of(new, find)
    if runtime is None:
        field = "spec.RuntimeRef" if kind == CLUSTER_TRAINING_RUNTIME.name else "spec.runtimeRef"
        needed = f"specified {kind[0].lower()}{kind[1:]} must be created before the TrainJob is created"
        why = f'{kind}.{group} "{ref.get("name")}" not found: {needed}'
        return AdmissionResult((f"{field}: Invalid value: {shown}: {why}",))
    warnings: tuple[str, ...] = ()
    if labels(runtime).get(SUPPORT_LABEL) == DEPRECATED:
        warnings = (
            f'Referenced {kind} "{name(runtime)}" is deprecated and will be removed in a future release of Kubeflow '
            f"Trainer. See runtime deprecation policy: {_POLICY_PAGE}",
        )
    errors = (
        *_initializer_errors(new, runtime, shown),
        *_framework_errors(new, runtime, show),
        *_patch_errors(old, new, jobset, show),
    )
    return AdmissionResult(errors, warnings)


def _initializer_errors(new: Object, runtime: Object, shown: str) -> Iterator[str]:
    jobs = {job.get("name"): job for job in dig(runtime, "spec.template.spec.replicatedJobs", None) or ()}
    for step, field in ((DATASET_STEP, "dataset"), (MODEL_STEP, "model")):
        if dig(new, f"spec.initializer.{field}", None) is None:
            continue
        job = jobs.get(step)
        if job is None:
            yield (
                f"spec.runtimeRef: Invalid value: {shown}: must have {step} job when trainJob is configured with input "
                f"{field}Config"
            )
            continue
        found = next(containers(job, step), None)
        if found is None:
            yield f"spec.runtimeRef: Invalid value: {shown}: must have container with name - {step} in the {step} job"
        elif not any(mount.get("name") == _INITIALIZER_VOLUME for mount in found.get("volumeMounts") or ()):
            yield (
                f"spec.runtimeRef: Invalid value: {shown}: must have volumeMount with name - {_INITIALIZER_VOLUME} in "
                f"container {step} of the {step} job"
            )


def _framework_errors(new: Object, runtime: Object, show: Printer) -> Iterator[str]:
    trainer, policy = dig(new, "spec.trainer", {}), dig(runtime, "spec.mlPolicy", {})
    variables = trainer.get("env") or []
    for field, reserved in (("torch", torch.RESERVED), ("mpi", mpi.RESERVED)):
        taken = sorted({one["name"] for one in variables} & set(reserved))
        if field in policy and taken:
            value, which = show(variables, "name", "value"), " ".join(taken)
            yield (
                f"spec.trainer.env: Invalid value: {value}: must not have reserved envs, invalid envs configured: [{which}]"
            )
    for index, one in enumerate(variables):
        if "xgboost" in policy and one["name"] in xgboost.RESERVED:
            yield f"spec.trainer.env[{index}]: Forbidden: {one['name']} is reserved for the XGBoost runtime"
    if "torch" in policy and torchtune.is_wanted(trainer):
        yield from _torchtune_errors(trainer, dig(new, "spec.runtimeRef.name", ""))


def _torchtune_errors(trainer: Mapping[str, Any], runtime_name: str) -> Iterator[str]:
    model, args = torchtune.model_of(runtime_name), [str(arg) for arg in trainer.get("args") or ()]
    if not model:
        yield (
            f'spec.runtimeRef.name: Invalid value: "{runtime_name}": must have a supported pretrained model, invalid model '
            "configured: "
        )
        return
    nodes = trainer.get("numNodes") or 1
    if nodes > 1 and model not in torchtune.SEVERAL_NODES:
        yield f"spec.trainer.numNodes: Invalid value: {nodes}: must be 1 for {model} model"
    if torchtune.is_qlora(args) and model in torchtune.WITHOUT_QLORA:
        yield f'spec.runtimeRef.name: Invalid value: "{runtime_name}": QLoRA is not supported for {model} model'
    for index, arg in enumerate(args):
        setting, equals, _ = arg.partition("=")
        if equals and setting in torchtune.MANAGED:
            yield (
                f'spec.trainer.args[{index}]: Invalid value: "{arg}": must not set immutable config "{setting}" in trainer '
                "args; it is managed by the runtime"
            )


def _patch_errors(old: Object | None, new: Object, jobset: Object | None, show: Printer) -> Iterator[str]:
    patches = dig(new, "spec.runtimePatches", None) or []
    for patch in patches:
        for cause in managed_by_causes("spec.runtimePatches.manager", str(patch.get("manager") or "")):
            yield f"{cause.field}: {cause.message}"
    if any(_sets_variables(patch) for patch in patches):
        which = ", ".join(_STEP_CONTAINERS)
        value = show(patches, "manager", "time", "trainingRuntimeSpec")
        yield f"spec.runtimePatches: Invalid value: {value}: must not have envs for the {which} containers"
    before = [_without_time(patch) for patch in dig(old, "spec.runtimePatches", None) or ()]
    if old is None or before == [_without_time(patch) for patch in patches]:
        return
    if not any(dig(job, "spec.suspend", False) for job in (old, new)):
        yield (
            "spec.runtimePatches: Forbidden: RuntimePatches can only be modified when the TrainJob is suspended before or "
            "after the update"
        )
        return
    for status in dig(jobset, "status.replicatedJobsStatus", None) or ():
        if status.get("active"):
            yield (
                "spec.runtimePatches: Forbidden: RuntimePatches cannot be modified when the JobSet's ReplicatedJob "
                f"{status.get('name')} is still active"
            )


def _sets_variables(patch: Mapping[str, Any]) -> bool:
    jobs = dig(patch, "trainingRuntimeSpec.template.spec.replicatedJobs", None) or ()
    return any(
        container.get("env")
        for job in jobs
        for part in ("containers", "initContainers")
        for container in dig(job, f"template.spec.template.spec.{part}", None) or ()
        if container.get("name") in _STEP_CONTAINERS
    )


def review_runtime(old: Object | None, new: Object, show_containers: Callable[[Any], str]) -> AdmissionResult:
    """Judge a runtime that is created; the label `trainer.kubeflow.org/webhook-validation: disabled` switches it off."""
    if old is not None or labels(new).get(UNCHECKED_LABEL) == UNCHECKED:
        return AdmissionResult()
    errors = []
    for index, job in enumerate(dig(new, "spec.template.spec.replicatedJobs", None) or ()):
        field, step = f"spec.template.spec.replicatedJobs[{index}]", step_of(job)
        if job.get("replicas", 1) != 1:
            errors.append(f"{field}.replicas: Invalid value: {job['replicas']}: always must be 1")
        wanted = {"trainer": NODE, DATASET_STEP: DATASET_STEP, MODEL_STEP: MODEL_STEP}.get(step)
        found = dig(job, "template.spec.template.spec.containers", None) or []
        if wanted and not any(container.get("name") == wanted for container in found):
            where = f"{field}.template.spec.template.spec.containers"
            why = f"must contain the required container for the ancestor: {step}"
            errors.append(f"{where}: Invalid value: {show_containers(found)}: {why}")
    return AdmissionResult(tuple(errors))
