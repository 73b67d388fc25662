"""`runai distributed submit`, `runai training [FRAMEWORK] submit`, `runai workspace submit`, `runai workload submit -f`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rowlock.cli import client
from rowlock.cli.context import project, typed_command
from rowlock.cli.grammar import CommandError, CommandLine, suggest_nearest
from rowlock.cli.lookups import WORKLOADS, read_projects
from rowlock.cli.output import parse_duration, show, show_json
from rowlock.cli.run.submit_checks import check_submit_flags, follow_submit, requested_name
from rowlock.cli.runai_v2.workloads import FRAMEWORKS
from rowlock.cli.submit.assets import asset_references
from rowlock.cli.submit.flags import ANY_FRAMEWORK
from rowlock.cli.submit.request import request_specs
from rowlock.cli.submit.sending import message_in_flags, send_submit
from rowlock.submit_fields import SUBMIT_FIELDS, flag_names

if TYPE_CHECKING:
    from rowlock.answers.cluster import Project


def any_framework(line: CommandLine) -> int:
    """`runai distributed submit`: --framework names the framework."""
    if line.template and not line.framework:
        return submit(line, ANY_FRAMEWORK, {})  # --framework names it
    return submit(line, ANY_FRAMEWORK, {"distributedFramework": framework_of(line)})


def framework_of(line: CommandLine) -> str:
    """The framework that --framework names, PyTorch without it. Raises CommandError."""
    word = line.framework or "pytorch"
    framework = FRAMEWORKS.get(word.lower().removesuffix("job"))
    if framework is None:
        hint = suggest_nearest(word.lower(), list(FRAMEWORKS))
        raise CommandError(
            f"--framework {word}: there is no such framework.{hint} Known: PyTorch, TF, MPI, XGBoost, JAX.", 2
        )
    return str(framework)


def framework(line: CommandLine) -> int:
    """`runai pytorch submit`, `runai training pytorch submit`: the framework is the word before the verb."""
    name = FRAMEWORKS[line.verb.split()[-2]]
    return submit(line, name, {"distributedFramework": name})


def standard(line: CommandLine) -> int:
    """Submit a training of one pod."""
    return submit(line, "Standard", {} if line.template else {"distributedFramework": "PyTorch", "noWorkers": True})


def workspace(line: CommandLine) -> int:
    """Submit a workspace: one pod for interactive work, with high priority and never preempted."""
    if line.template:
        return submit(line, "Standard", {})
    fields = {"distributedFramework": "PyTorch", "noWorkers": True, "category": "Build"}
    return submit(line, "Standard", fields if line.priority else {**fields, "priorityClass": "high"})


def submit(line: CommandLine, framework: str, fields: dict[str, Any]) -> int:
    """Submit a workload of this framework from the flags of the second generation. `fields`: spec fields that the command
    itself sets."""
    check_submit_flags(line)
    _check_request_type(line)
    if line.wait_for_submit:
        parse_duration(line.wait_for_submit, "--wait-for-submit")
    name = requested_name(line)
    if name and line.name_prefix:
        raise CommandError(f"a name ({name}) and --name-prefix exclude each other: give one of them", 2)
    spec, master = request_specs(line, 2, framework)
    server = client.connect(line)
    body: dict[str, Any] = {
        "name": name or line.name_prefix or "workload",
        "projectId": project(line),
        "spec": {**spec, **fields},
        "submitCommand": typed_command(line),
        **asset_references(line),
    }
    if not name:
        body["useGivenNameAsPrefix"] = True
    if master:
        body["masterSpec"] = master
    try:
        if line.dry_run:
            answer = server.post(_collection(line, framework), body, dryRun=True)
        else:
            answer = send_submit(server, _collection(line, framework), body)
    except client.StatusError as refusal:
        if refusal.status == 409 and "already exists, please delete it" in refusal.message:
            family = line.verb.rpartition(" ")[0]
            hint = f"delete it with `runai {family} delete {name}`, or choose another name"
            raise CommandError(f"Workload named '{name}' already exists in the project: {hint}") from None
        raise CommandError(message_in_flags(refusal, flag_names(2, line.given_flags))) from None
    if line.dry_run:
        show_json(answer["objects"])
        return 0
    family = line.verb.rpartition(" ")[0]
    show(f"Creating {family.split()[0]} {answer['name']}...")
    show(f"To track the workload's status, run 'runai {family} describe {answer['name']}'")
    return follow_submit(line, server, answer["name"])


def _collection(line: CommandLine, framework: str) -> str:
    """The REST path that creates the workload. With a template it is the path of its type, because the server looks for the
    template there."""
    if framework != "Standard" or not line.template:
        return f"{WORKLOADS}/distributed"
    return f"{WORKLOADS}/{'workspaces' if line.verb.startswith('workspace') else 'trainings'}"


def _check_request_type(line: CommandLine) -> None:
    """Raise CommandError for MIG profiles, with the reason from the table of submit fields."""
    if line.gpu_request_type == "migProfile":
        reason = next(row.refuse for row in SUBMIT_FIELDS if row.v2 == "--mig-profile")
        raise CommandError(f"--gpu-request-type migProfile is not supported by rowlock: {reason}")


# ---------------------------------------------------------------- manifests


def manifest(line: CommandLine) -> None:
    """`runai workload submit -f FILE`: create the objects of a manifest in the project's namespace. Jobs become workloads through the
    REST API; other objects are created unchanged."""
    import yaml

    if not line.file:
        raise CommandError("`runai workload submit` needs a manifest: -f FILE; `runai training submit` takes flags", 2)
    with sys.stdin if line.file == "-" else open(line.file, encoding="utf-8") as file:
        try:
            objects = [obj for obj in yaml.safe_load_all(file) if obj]
        except yaml.YAMLError as error:
            raise CommandError(f"{line.file} is not YAML: {error}") from None
    if not objects or not all(isinstance(obj, dict) and obj.get("kind") for obj in objects):
        raise CommandError(f"{line.file} has no Kubernetes object: each needs apiVersion, kind and metadata.name")
    server = client.connect(line)
    projects = read_projects(server)
    place = next((p for p in projects if p["name"] == project(line)), None)
    if place is None:
        raise CommandError(
            f"project {project(line)} was not found.{suggest_nearest(project(line), [p['name'] for p in projects])}"
        )
    for obj in objects:
        create = _create_job if _is_job(obj) else _create_object
        show(f"{obj['kind'].lower()} {create(server, obj, place)} created in project {project(line)}")


def _is_job(obj: dict[str, Any]) -> bool:
    return str(obj.get("apiVersion", "")).startswith("kubeflow.org/") and str(obj["kind"]).endswith("Job")


def _create_job(server: client.ServerClient, job: dict[str, Any], place: Project) -> str:
    """Create a workload from a job's manifest and return its name."""
    metadata = job.get("metadata") or {}
    prefix = "" if metadata.get("name") else str(metadata.get("generateName") or "")
    named = {"name": prefix.rstrip("-"), "useGivenNameAsPrefix": True} if prefix else {}
    made = server.post("/api/v2/workloads", {"metadata": {"projectId": place["id"], **named}, "manifest": job})
    return str(made["metadata"]["name"])


def _create_object(server: client.ServerClient, obj: dict[str, Any], place: Project) -> str:
    """The name of the object that was created."""
    namespace = place["status"]["namespace"]
    path = _collection_path(server, obj, namespace)
    made = server.post(path, {**obj, "metadata": {**(obj.get("metadata") or {}), "namespace": namespace}})
    return str(made["metadata"]["name"])


def _collection_path(server: client.ServerClient, obj: dict[str, Any], namespace: str) -> str:
    """The Kubernetes path at which objects of this kind are created, from the server's discovery. Raises CommandError for an
    unknown kind."""
    version, kind = str(obj.get("apiVersion", "")), str(obj["kind"])
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    try:
        resources = server.get(base)["resources"]
    except client.StatusError:
        resources = []
    resource = next((r for r in resources if r["kind"] == kind and "/" not in r["name"]), None)
    if resource is None or not resource["namespaced"]:
        raise CommandError(
            f"{kind} of {version or 'no apiVersion'} cannot be submitted to a project: rowlock serves no such kind there"
        )
    return f"{base}/namespaces/{namespace}/{resource['name']}"
