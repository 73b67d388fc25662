"""`python -m rowlock.kube.transfer.move`, the other half of `rowlock move`: a job's request, submitted to a cluster of a
kubeconfig.

Reads `{"request", "codeRoots", "code"}` as JSON from stdin. It checks everything first (the kinds, the project, the
name, what the pods need, and the objects themselves by dry runs), so that a refusal leaves nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import logging
import sys
import uuid
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, ApiError, BadRequest, NotFound
from rowlock.gangs.dialects import Dialect, priority_class_of
from rowlock.gangs.growth import find_growth
from rowlock.gangs.host_image import host_image_cause
from rowlock.kinds import Kind
from rowlock.kube.client import Kube
from rowlock.kube.installation import choose_dialect, missing_kinds
from rowlock.kube.rate_limit import Limits
from rowlock.kube.transfer.moved_job import (
    MoveOptions,
    code_object,
    moved_request,
    needed_objects,
    owned_by,
    with_code,
)
from rowlock.objects import Object, name
from rowlock.workloads.feasibility import infeasible_cause, queue_limit_cause
from rowlock.workloads.objects import Submitter, claim_objects, to_job
from rowlock.workloads.projects import Project, is_project, project_of
from rowlock.workloads.submission import Submission

_DRY_RUN, _WRITE = WriteOptions(manager="rowlock", dry_run=True), WriteOptions(manager="rowlock")


@dataclass(frozen=True, slots=True)
class _Plan:
    """The objects to create; `code` is None without code."""

    kind: Kind
    job: Object
    code: Object | None
    project: Project
    dialect: Dialect
    notes: list[str]


async def plan_move(kube: Kube, body: dict[str, Any], options: argparse.Namespace) -> _Plan:
    """Check everything without writing. Returns what to create. Raises ApiError with advice."""
    wanted = MoveOptions(options.name, options.project, options.image)
    request, notes = moved_request(body["request"], body.get("codeRoots") or (), wanted)
    kind = request.framework.kind
    if await missing_kinds(kube, (kind,)):
        raise BadRequest(f"that cluster has no {kind.resource}: install Kubeflow's training operator there first")
    dialect, consequence = await choose_dialect(kube, options.scheduler)
    project, queues = await _find_project(kube, request.project)
    identity = str(uuid.uuid4())
    job = to_job(request, project, Submitter(identity, getpass.getuser(), "CLI"))
    packed = b64decode(body.get("code") or "")
    code = code_object(request.name, project.namespace, identity, packed) if packed else None
    await _require_free_name(kube, project, request.name)
    await _require_possible(kube, request, project, queues)
    await _require_needed(kube, job, request, project)
    await _require_queue(kube, dialect, job)
    job, notices = await _dress(kube, dialect, with_code(job, code) if code else job, request)
    for obj_kind, obj in ((kinds.CONFIG_MAP, code), (kind, job)):
        if obj is not None:
            await kube.create(obj_kind, obj, options=_DRY_RUN)
    return _Plan(kind, job, code, project, dialect, [*notes, *filter(None, (consequence,)), *notices])


async def _find_project(kube: Kube, wanted: str) -> tuple[Project, list[Object]]:
    """The project, and its queue with all ancestors. Raises BadRequest, listing the existing projects."""
    queues = {name(queue): queue for queue in (await kube.list(kinds.QUEUE)).items}
    namespaces = [n for n in (await kube.list(kinds.NAMESPACE)).items if is_project(n)]
    projects = {p.name: p for p in (project_of(n, None) for n in namespaces)}
    found = projects.get(wanted)
    if found is None or found.deleting:
        there = ", ".join(sorted(projects)) or "none"
        raise BadRequest(
            f"that cluster has no project {wanted!r} (its projects: {there}): name one with --to-project NAME, or make it"
            f" with `rowlock project create {wanted}` at a server of that cluster"
        )
    path, current = [], queues.get(found.queue)
    while current is not None and current not in path:
        path.append(current)
        current = queues.get(str((current.get("spec") or {}).get("parentQueue") or ""))
    return found, path


async def _require_free_name(kube: Kube, project: Project, job_name: str) -> None:
    for kind in kinds.JOBS:
        try:
            await kube.get(kind, project.namespace, job_name)
        except NotFound:
            continue
        raise AlreadyExists(
            f"project {project.name} of that cluster has a {kind.name} {job_name} already: name the moved one with --name NAME"
        )


async def _require_possible(kube: Kube, request: Submission, project: Project, queues: list[Object]) -> None:
    """Raises BadRequest for a job that fits on no node, where no other comes, or never within the limits of its project."""
    nodes = (await kube.list(kinds.NODE)).items
    causes = [infeasible_cause(role.compute, nodes, request.options.pool) for role in (request.worker, request.master)]
    if any(causes) and await find_growth(kube, nodes, await kube.get(kinds.NAMESPACE, "", project.namespace)):
        causes = []
    for cause in (*causes, queue_limit_cause(request, queues)):
        if cause is not None:
            raise BadRequest(f"that cluster cannot run it: {cause.message}")


async def _require_needed(kube: Kube, job: Object, request: Submission, project: Project) -> None:
    """Raises BadRequest when claims, ConfigMaps or Secrets that the pods use do not exist there: data is not moved."""
    if claims := claim_objects(request, project, ""):
        names = ", ".join(name(claim) for claim, _ in claims)
        raise BadRequest(
            f"it makes volumes of its own ({names}), whose data would stay here: make claims there, and submit it there with them"
        )
    missing = []
    for kind, wanted in sorted(needed_objects(job), key=lambda pair: (pair[0].plural, pair[1])):
        try:
            await kube.get(kind, project.namespace, wanted)
        except NotFound:
            missing.append(f"{kind.singular} {wanted}")
    if missing:
        raise BadRequest(
            f"the namespace {project.namespace} of that cluster lacks what its pods need: {', '.join(missing)}; make them there first"
        )


async def _require_queue(kube: Kube, dialect: Dialect, job: Object) -> None:
    queue = dialect.needed_queue(job)
    if queue is None:
        return
    try:
        await kube.get(queue.kind, queue.namespace, queue.name)
    except NotFound:
        raise BadRequest(
            f"{dialect.title} of that cluster has no {queue.kind.name} {queue.name!r}, and would never start the job: make one"
        ) from None


async def _dress(kube: Kube, dialect: Dialect, job: Object, request: Submission) -> tuple[Object, list[str]]:
    """(the job adapted to that cluster's scheduler, notices about evictions and shares of GPUs). Raises BadRequest."""
    nodes = (await kube.list(kinds.NODE)).items
    for cause in filter(None, (host_image_cause(job, nodes), *dialect.refusals(job, nodes))):
        raise BadRequest(f"that cluster cannot run it: {cause.message}")
    classes: dict[str, int] = {}
    if dialect.scheduler_name and (wanted := priority_class_of(job)):
        try:
            classes[wanted] = int((await kube.get(kinds.PRIORITY_CLASS, "", wanted)).get("value") or 0)
        except NotFound:
            raise BadRequest(
                f"that cluster has no PriorityClass {wanted}: `rowlock manifests | kubectl apply -f -` makes Run:ai's"
            ) from None
    dressed, notices = dialect.share_gpus(dialect.dress(job, request, classes), nodes)
    return dressed, [*filter(None, [dialect.notice(dressed, classes)]), *notices]


async def carry_out(kube: Kube, plan: _Plan) -> None:
    """Create the code first, because pods need it at once, then the job; if that fails, delete the code. Raises ApiError."""
    if plan.code is not None:
        await kube.create(kinds.CONFIG_MAP, plan.code, options=_WRITE)
    try:
        created = await kube.create(plan.kind, plan.job, options=_WRITE)
        await _create_gang(kube, plan, created)
    except ApiError:
        if plan.code is not None:
            await kube.delete(kinds.CONFIG_MAP, plan.project.namespace, name(plan.code))
        raise
    if plan.code is not None:
        patch = owned_by(plan.code, created)
        await kube.patch(kinds.CONFIG_MAP, plan.project.namespace, name(plan.code), patch, options=_WRITE)


async def _create_gang(kube: Kube, plan: _Plan, job: Object) -> None:
    gang, kind = plan.dialect.gang_object(job), plan.dialect.group_kind
    if gang is None or kind is None:
        return
    try:
        await kube.create(kind, gang, options=_WRITE)
    except ApiError:
        await kube.delete(plan.kind, plan.project.namespace, name(job))
        raise


async def run(body: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Move the job. Returns facts about what was (or with a dry run would be) submitted. Raises ApiError, ValueError, KeyError, OSError."""
    limits = Limits(qps=0, max_tries=2)
    async with Kube.connect(options.kubeconfig, options.context or None, limits=limits) as kube:
        plan = await plan_move(kube, body, options)
        if not options.dry_run:
            await carry_out(kube, plan)
    objects = [obj for obj in (plan.code, plan.job) if obj is not None]
    facts = {"name": name(plan.job), "project": plan.project.name, "namespace": plan.project.namespace}
    return {**facts, "notes": plan.notes, **({"objects": objects} if options.dry_run else {})}


def main(argv: list[str] | None = None) -> int:
    """Submit the job from stdin and print the answer as JSON. Exit code 1, with a message, if nothing was submitted."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(prog="python -m rowlock.kube.transfer.move")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--context", default="")
    parser.add_argument("--scheduler", default="auto")
    for flag in ("--name", "--project", "--image"):
        parser.add_argument(flag, default="")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(argv)
    try:
        answer = asyncio.run(run(json.load(sys.stdin), options))
    except ApiError as error:
        print(error.message, file=sys.stderr)
        return 1
    except (ValueError, KeyError, OSError) as error:
        print(f"the kubeconfig {options.kubeconfig} cannot be used: {error}", file=sys.stderr)
        return 1
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
