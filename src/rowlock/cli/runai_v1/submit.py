"""`runai submit-dist FRAMEWORK` and its old spellings: flags → the request of Run:ai's REST API."""

from __future__ import annotations

import shlex
from typing import Any

from rowlock.cli import client, compute_flags
from rowlock.cli.commands.jobs import WORKLOADS
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import parse_duration, show, show_json


def pytorch(line: CommandLine) -> int:
    return submit(line, "PyTorch")


def tf(line: CommandLine) -> int:
    return submit(line, "TF")


def mpi(line: CommandLine) -> int:
    return submit(line, "MPI")


def xgboost(line: CommandLine) -> int:
    return submit(line, "XGBoost")


def submit(line: CommandLine, framework: str) -> int:
    _check_flags(line)
    name_flag = _requested_name(line)
    spec = worker_spec(line, framework)
    server, project_name = client.connect(line), project(line)
    name = name_flag or _free_name(server, project_name, line.job_name_prefix or "job")
    body: dict[str, Any] = {
        "name": name,
        "projectId": project_name,
        "spec": spec,
        "submitCommand": _typed_command(line),
    }
    master = master_spec(line, spec)
    if master:
        body["masterSpec"] = master
    if line.dry_run:
        show_json(server.call("POST", f"{WORKLOADS}/distributed", body=body, query={"dryRun": True})["objects"])
        return 0
    try:
        server.post(f"{WORKLOADS}/distributed", body)
    except client.StatusError as refusal:
        raise CommandError(client.message_in_flags(refusal, _FLAG_OF)) from None
    show(f"The job '{name}' has been submitted successfully")
    show(f"You can run `runai describe job {name} -p {project_name}` to check the job status")
    return 0


def _typed_command(line: CommandLine) -> str:
    return shlex.join([line.program, *line.argv])


_FLAG_OF = {
    "name": "--name", "spec.image": "-i, --image", "spec.numWorkers": "--workers",
    "spec.compute.gpuDevicesRequest": "--gpu", "spec.compute.gpuPortionRequest": "--gpu",
    "spec.compute.gpuMemoryRequest": "--gpu-memory", "spec.compute.cpuMemoryRequest": "--memory",
    "spec.compute.cpuMemoryLimit": "--memory-limit", "spec.compute.cpuCoreLimit": "--cpu-limit",
    "spec.minReplicas": "--min-replicas", "spec.maxReplicas": "--max-replicas", "spec.backoffLimit": "--backoff-limit",
    "spec.nodePools": "--node-pools", "spec.slotsPerWorker": "--slots-per-worker",
}  # fmt: skip
"""A field of the request in the words of this command line."""


# ---------------------------------------------------------------- names


def _requested_name(line: CommandLine) -> str:
    """The positional NAME or --name, not both."""
    names = [*line.words, *([line.name] if line.name else [])]
    if len(names) > 1:
        raise CommandError(f"unexpected arguments {line.words[-1:] if line.name else line.words[1:]}")
    return str(names[0]) if names else ""


def _free_name(server: client.ServerClient, project_name: str, prefix: str) -> str:
    query = f"projectName=={project_name},name=^{prefix}-"
    taken = {w["name"] for w in client.list_all(server, WORKLOADS, "workloads", filterBy=query)}
    return next(name for n in range(len(taken) + 1) if (name := f"{prefix}-{n}") not in taken)


# ---------------------------------------------------------------- flags that must agree


def _check_flags(line: CommandLine) -> None:
    if not line.image:
        raise CommandError("\n-i, --image must be set\n")
    if line.tty and not line.stdin:
        raise CommandError("--stdin is required for containers with -t/--tty=true")
    if line.gpu and line.gpu_memory:
        raise CommandError("unexpected to accept both gpu and gpu-memory flag. please use only one of them")
    if line.preemptible and line.non_preemptible:
        raise CommandError(
            "unexpected to accept both preemptible and non-preemptible flag. please use only one of them"
        )
    if line.workers < 1:
        raise CommandError(f"--workers must be at least 1, but is {line.workers}")
    if line.command and not line.rest:
        raise CommandError("--command needs the command after `--`, for example: --command -- python train.py")


# ---------------------------------------------------------------- the request


def worker_spec(line: CommandLine, framework: str) -> dict[str, Any]:
    """The `spec` of the request: only what was asked for."""
    rest = line.rest or []
    spec: dict[str, Any] = {
        "image": line.image,
        "numWorkers": line.workers,
        "distributedFramework": framework,
        "cleanPodPolicy": line.clean_pod_policy,
        "backoffLimit": line.backoff_limit,
        "compute": _compute_request(line),
        "environmentVariables": _variables(line.environment, "-e"),
        "labels": _parse_pairs(line.label, "-l"),
        "annotations": _parse_pairs(line.annotation, "-a"),
    }
    if line.command:
        spec["command"], spec["args"] = rest[:1], [*rest[1:], *line.args]
    elif rest or line.args:
        spec["args"] = [*line.args, *rest]
    optional = {
        "imagePullPolicy": "Always" if line.always_pull_image else line.image_pull_policy,
        "workingDir": line.working_dir,
        "nodeType": line.node_type,
        "nodePools": [pool for pools in line.node_pools for pool in pools.split(",")],
        "stdin": line.stdin,
        "tty": line.tty,
        "noMaster": getattr(line, "no_master", False) if framework != "MPI" else False,
        "preemptibility": "preemptible" if line.preemptible else "non-preemptible" if line.non_preemptible else "",
    }
    if framework == "PyTorch":
        optional |= {"minReplicas": line.min_replicas, "maxReplicas": line.max_replicas}
    if framework == "MPI":
        optional["slotsPerWorker"] = line.slots_per_worker
    if line.ttl_after_finish:
        optional["autoDeletionTimeAfterCompletionSeconds"] = int(
            parse_duration(line.ttl_after_finish, "--ttl-after-finish")
        )
    return {name: value for name, value in {**spec, **optional}.items() if value or (value == 0 and value is not False)}


def _compute_request(line: CommandLine) -> dict[str, Any]:
    request = compute_flags.compute_request(line)
    if line.gpu_memory:
        memory = compute_flags.normalize_quantity(line.gpu_memory)
        request |= {"gpuDevicesRequest": 1, "gpuRequestType": "memory", "gpuMemoryRequest": memory}
    if line.memory:
        request["cpuMemoryRequest"] = compute_flags.normalize_quantity(line.memory)
    if line.memory_limit:
        request["cpuMemoryLimit"] = compute_flags.normalize_quantity(line.memory_limit)
    if line.cpu_limit is not None:
        request["cpuCoreLimit"] = line.cpu_limit
    if line.large_shm:
        request["largeShmRequest"] = True
    if line.extended_resource:
        request["extendedResources"] = _parse_resources(line.extended_resource, "--extended-resource")
    return request


def master_spec(line: CommandLine, spec: dict[str, Any]) -> dict[str, Any]:
    """What the master does differently; {} when nothing."""
    master: dict[str, Any] = {}
    if line.master_args:
        master["args"] = line.master_args
    if line.master_environment:
        master["environmentVariables"] = _override_variables(
            spec.get("environmentVariables", []), line.master_environment
        )
    compute = {k: v for k, v in spec.get("compute", {}).items() if not k.startswith("gpu")}
    gpu = getattr(line, "master_gpu", None) if "master_gpu" in line.given_flags else None
    if gpu is not None:
        master["compute"] = {**compute, **compute_flags.gpu_request(gpu, "--master-gpu")}
    if line.master_extended_resource:
        base = master.get("compute") or spec.get("compute", {})
        master["compute"] = {
            **base,
            "extendedResources": _parse_resources(line.master_extended_resource, "--master-extended-resource"),
        }
    return master


def _override_variables(workers: list[dict[str, str]], overrides: list[str]) -> list[dict[str, str]]:
    variables = {v["name"]: v["value"] for v in workers}
    for item in _variables(overrides, "--master-environment"):
        if item["value"] == "-":
            variables.pop(item["name"], None)
        else:
            variables[item["name"]] = item["value"]
    return [{"name": name, "value": value} for name, value in variables.items()]


def _variables(entries: list[str], flag: str) -> list[dict[str, str]]:
    return _parse_pairs(entries, flag)


def _parse_pairs(entries: list[str], flag: str) -> list[dict[str, str]]:
    pairs = []
    for item in entries:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise CommandError(f'invalid argument "{item}" for {flag}: write NAME=VALUE')
        pairs.append({"name": name, "value": value})
    return pairs


def _parse_resources(entries: list[str], flag: str) -> list[dict[str, str]]:
    items = [part for item in entries for part in item.split(",")]
    return [{"resource": pair["name"], "quantity": pair["value"]} for pair in _parse_pairs(items, flag)]
