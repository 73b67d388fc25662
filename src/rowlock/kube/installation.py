"""What a real cluster must serve before rowlock can work on it, and the two kinds that rowlock can bring itself.

Queue and PodGroup are KAI's kinds. Where KAI is not installed, `crd_objects` declares the same names, with a looser
schema; KAI's own CRDs replace them when it is installed later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

from rowlock import kinds
from rowlock.api import Api, WriteOptions
from rowlock.errors import AlreadyExists, BadRequest, Conflict, Forbidden, NotFound, Unavailable
from rowlock.gangs.dialects import BIND_REQUEST, DIALECTS, INSTALLED, Dialect
from rowlock.kinds import Kind
from rowlock.kube.client import Kube
from rowlock.kube.install.crd import OPEN, crd_object
from rowlock.kube.install.job_kinds import job_crd_objects
from rowlock.kube.install.trainer_kinds import trainer_crd_objects
from rowlock.kube.rights import SYSTEM_NAMESPACE
from rowlock.objects import Object, is_condition_true
from rowlock.workloads.body_fields import did_you_mean

CRD = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", ("crd",), False)
OPERATOR_COMMAND = 'kubectl apply --server-side -k "github.com/kubeflow/training-operator.git/manifests/overlays/standalone?ref=v1.9.4"'
KINDS_REMEDY = "`rowlock manifests --operator own | kubectl apply -f -` brings them, or `--install-crds` at the start"
ESTABLISH_TIMEOUT_S = 15.0
"""Seconds to wait for the API server to serve a new kind."""
_POLL_INTERVAL_S = 0.1
_BOUND: Object = {"type": "number"}
_RESOURCE: Object = {"type": "object", "properties": {"quota": _BOUND, "limit": _BOUND, "overQuotaWeight": _BOUND}}
_QUEUE_SPEC: Object = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "parentQueue": {"type": "string"},
        "priority": {"type": "integer"},
        "resources": {"type": "object", "properties": {name: _RESOURCE for name in ("cpu", "memory", "gpu")}},
    },
}
_SPECS: tuple[tuple[Kind, Object], ...] = ((kinds.QUEUE, _QUEUE_SPEC), (kinds.POD_GROUP, OPEN))


def crd_objects() -> list[Object]:
    """The CustomResourceDefinitions of Queue and PodGroup."""
    return [
        crd_object(kind, {"properties": {"spec": spec, "status": OPEN}}, subresources={"status": {}})
        for kind, spec in _SPECS
    ]


async def missing_kinds(api: Api, wanted: Iterable[Kind]) -> list[Kind]:
    """The kinds that the cluster does not serve. Raises ApiError when it does not answer or forbids to list them."""
    missing: list[Kind] = []
    for kind in wanted:
        try:
            await api.list(kind, limit=1)
        except NotFound:
            missing.append(kind)
    return missing


async def install_crds(api: Api, missing: Sequence[Kind]) -> None:
    """Create the definitions of these kinds, and wait until they are served. Raises ApiError."""
    for definition in (*crd_objects(), *job_crd_objects(), *trainer_crd_objects()):
        if definition["metadata"]["name"] not in {kind.resource for kind in missing}:
            continue
        try:
            await api.create(CRD, definition, options=WriteOptions(manager="rowlock"))
        except AlreadyExists:
            pass  # another rowlock server installs them too
    try:
        async with asyncio.timeout(ESTABLISH_TIMEOUT_S):
            for kind in missing:
                while not is_condition_true(await api.get(CRD, "", kind.resource), "Established"):
                    await asyncio.sleep(_POLL_INTERVAL_S)
                while await missing_kinds(api, [kind]):
                    await asyncio.sleep(_POLL_INTERVAL_S)
    except TimeoutError:
        names = ", ".join(kind.resource for kind in missing)
        raise Unavailable(
            f"the cluster did not begin to serve {names} within {ESTABLISH_TIMEOUT_S:.0f} s: `kubectl describe crd` says why"
        ) from None


async def require_kinds(
    api: Api, *, install: bool, has_operator: bool = False, has_scheduler: bool = False
) -> list[str]:
    """Check the kinds that rowlock needs, and create them if `install`: Queue and PodGroup, and the kinds of jobs if rowlock's operators
    run too (`has_operator`).

    Returns notices about kinds that are missing or hidden from these credentials; the server runs without them. Raises ApiError, with what
    to do, if creating them fails, or if rowlock's scheduler (`has_scheduler`) cannot work without them."""
    notices: list[str] = []
    missing = await _look_for(api, (kinds.QUEUE, kinds.POD_GROUP), notices)
    if missing and install:
        await install_crds(api, missing)
    elif missing:
        names = " and ".join(kind.resource for kind in missing)
        sentence = f"the cluster does not serve {names}: install KAI Scheduler, or let rowlock create them with `--install-crds`"
        if has_scheduler:
            raise Unavailable(sentence)
        notices.append(sentence)
    absent_jobs = await _look_for(api, kinds.JOBS, notices)
    if absent_jobs and install and has_operator:
        await install_crds(api, absent_jobs)
    elif len(absent_jobs) == len(kinds.JOBS):
        notices.append(
            f"the cluster serves no kind of job: install Kubeflow's training operator, with `{OPERATOR_COMMAND}`,"
            " or let rowlock do its work with `--operator own --install-crds`"
        )
    elif absent_jobs:
        notices.append(f"the cluster does not serve {', '.join(kind.resource for kind in absent_jobs)}")
    if has_operator and (absent := await _look_for(api, kinds.TRAINER, notices)):
        if install:
            await install_crds(api, absent)
        else:
            notices.append(f"the cluster does not serve {', '.join(kind.resource for kind in absent)}: {KINDS_REMEDY}")
    return notices


async def _look_for(api: Api, wanted: Iterable[Kind], notices: list[str]) -> list[Kind]:
    """The missing kinds. A kind that these credentials may not list counts as present, with a notice appended to `notices`."""
    missing: list[Kind] = []
    for kind in wanted:
        try:
            missing += await missing_kinds(api, [kind])
        except Forbidden as error:
            notices.append(f"the cluster does not show {kind.resource} to this server: {error.message}")
    return missing


async def has_kai(api: Api) -> bool | None:
    """Whether KAI Scheduler is installed; None if these credentials may not see it. Raises ApiError."""
    try:
        return not await missing_kinds(api, (BIND_REQUEST,))
    except Forbidden:  # RBAC answers before the server checks whether the kind exists
        return None


async def find_release(api: Api, dialect: Dialect) -> Dialect | None:
    """The dialect for the installed release of the scheduler; None if it is not installed. Raises ApiError (Forbidden if these credentials
    may not see it)."""
    for release in dialect.releases():
        assert release.proof is not None
        if not await missing_kinds(api, (release.proof,)):
            return None if await _is_rowlocks(api) else release
    return None


async def _is_rowlocks(api: Api) -> bool:
    """Whether the API server is rowlock's own: it serves PodGroups of Volcano and coscheduling, which Trainer makes, and runs neither."""
    return isinstance(api, Kube) and "+rowlock" in await api.git_version()


async def is_installed(api: Api, dialect: Dialect) -> bool | None:
    """As `has_kai`, for any scheduler that can be installed."""
    try:
        return await find_release(api, dialect) is not None
    except Forbidden:
        return None


async def choose_dialect(api: Api, choice: str) -> tuple[Dialect, str]:
    """(the scheduler that jobs are submitted to, a notice about it or ""), by the value of `rowlock up --scheduler`.

    Raises ApiError if the choice cannot work."""
    if choice not in (*DIALECTS, "auto"):
        raise BadRequest(
            f"--scheduler takes auto, {', '.join(DIALECTS)}, not {choice}.{did_you_mean(choice, DIALECTS)}"
        )
    has_kai_scheduler = await has_kai(api)
    if choice == "own" and has_kai_scheduler:
        raise Conflict(
            "the cluster has KAI Scheduler, and two gang schedulers take the same room twice: leave out --scheduler own,"
            " and jobs are submitted to KAI"
        )
    chosen = DIALECTS.get(choice)
    if chosen in INSTALLED:
        chosen = await _require_installed(api, chosen)
    if choice == "auto":
        chosen = await _find_installed(api) or DIALECTS["cluster"]
    assert chosen is not None
    if chosen.name not in ("cluster", "kube"):
        return chosen, f"jobs go to {chosen.title}: {chosen.lost}" if chosen.lost else ""
    if has_kai_scheduler is None:
        unknown = f"it is not known whether the cluster has KAI Scheduler: these credentials may not list {BIND_REQUEST.resource}"
        return chosen, unknown
    remedy = "" if has_kai_scheduler else "; `--scheduler own` starts rowlock's scheduler for that"
    lost = "pods of a job may start one by one, and quotas are not enforced"
    return chosen, f"jobs go to the cluster's default scheduler, which is no gang scheduler: {lost}{remedy}"


async def _find_installed(api: Api) -> Dialect | None:
    for dialect in INSTALLED:
        with suppress(Forbidden):
            if (release := await find_release(api, dialect)) is not None:
                return release
    return None


async def _require_installed(api: Api, dialect: Dialect) -> Dialect:
    """The dialect for the installed release, or for the newest one if these credentials may not see it. Raises Unavailable if the scheduler
    is not installed."""
    try:
        release = await find_release(api, dialect)
    except Forbidden:
        return dialect
    if release is None:
        assert dialect.proof is not None
        raise Unavailable(
            f"the cluster does not serve {dialect.proof.resource}, so {dialect.title} is not installed: install it, or let"
            " rowlock schedule with `--scheduler own`"
        )
    return release


async def ensure_system_namespace(kube: Kube) -> None:
    """Create the namespace of the Leases if it is missing. Raises Forbidden, with what to do."""
    try:
        await kube.get(kinds.NAMESPACE, "", SYSTEM_NAMESPACE)
        return
    except NotFound:
        pass  # created below
    try:
        await kube.create(
            kinds.NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
        )
    except AlreadyExists:
        return
    except Forbidden as error:
        message = (
            f"the namespace {SYSTEM_NAMESPACE} is missing and may not be made with these credentials: {error.message}"
        )
        raise Forbidden(f"{message}; `rowlock manifests | kubectl apply -f -` makes it") from error
