"""The assembly over a real Kubernetes cluster: Run:ai's REST API and the command lines, on objects of its API server.

What `rowlock up --kubeconfig FILE` runs. Kubeflow's training operator creates the pods, the cluster's scheduler places them and its
kubelets run them. The data directory holds this server's token, certificates and address, but no cluster state: losing it loses no job. The
holder of its token acts with the rights of the kubeconfig; users of the cluster log in with their own tokens and have their own rights
(`kube_users.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from rowlock import __version__, kinds, objects, server_files
from rowlock.archive.archive import Archive
from rowlock.archive.bucket import UnusableBucket, open_bucket
from rowlock.archive.retention import Retention
from rowlock.archive.shared_archive import SharedArchive, claim_bucket, directory_of
from rowlock.assembly import Server
from rowlock.audit.audit_log import AuditLog
from rowlock.controllers import loop_watchdog
from rowlock.controllers.supervisor import supervise
from rowlock.errors import ApiError, BadRequest, Forbidden
from rowlock.gangs.dialects import OWN, Dialect
from rowlock.gangs.host_image import require_images
from rowlock.http_server import sockets
from rowlock.kube.client import Kube
from rowlock.kube.cluster_probe import ClusterProbe
from rowlock.kube.installation import choose_dialect, ensure_system_namespace, require_kinds
from rowlock.kube.proxy.api_proxy import ApiProxy
from rowlock.kube.rate_limit import Limits
from rowlock.kube.rights import (
    ARCHIVE_RULES,
    DEBUG_RULES,
    OPERATOR_RULES,
    SCHEDULER_RULES,
    TRAINER_RULES,
    Rule,
    missing_rights,
)
from rowlock.kube.users.cluster_users import UNKNOWN_TOKEN
from rowlock.kube.watches.object_decoder import ObjectDecoder
from rowlock.kube_evidence.archive_leader import ArchiveLeader
from rowlock.kube_evidence.ended_jobs import EndedJobs
from rowlock.kube_evidence.log_collector import LogCollector, read_kept_log
from rowlock.kube_evidence.rank_failures import KubeDiagnostics
from rowlock.kube_evidence.rank_observer import RankObserver
from rowlock.kube_operator.operator import GANGS_OF_JOB_SETS, JOB_SETS, TRAIN_JOBS, KubeOperator
from rowlock.kube_operator.sweeps import KubeSweeps, read_sweep_key
from rowlock.kube_scheduler import KubeScheduler, process_name
from rowlock.kube_users import KubeUsers
from rowlock.kubelet.network.egress_policy import server_denial
from rowlock.metrics.exposition import MetricSources, render_metrics
from rowlock.metrics.request_stats import RequestStats
from rowlock.rest.app import RestApi
from rowlock.rest.call import RestSettings
from rowlock.rest.hours.live_jobs import live_jobs
from rowlock.rest.inventory.queue_owners import QueueOwners
from rowlock.rest.notifications.settings import notify_settings
from rowlock.rest.run_history.standby import RunElected
from rowlock.storage.journal import acquire_lock

_LIMITS = Limits(qps=0)
"""The API server's own fairness limits us; client-side limits would only make users wait."""
_DECODER = ObjectDecoder()
"""Shared by all clients of this process, so that the REST API, the scheduler and the operators share one copy of equal data."""


class KubeServer(Server):
    """One real cluster and its REST API on one HTTPS port."""

    @property
    def _kubeconfig(self) -> Path:
        assert self.options.kubeconfig is not None, "`serve.py` makes a KubeServer only where there is one"
        return self.options.kubeconfig

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Raises ApiError, with what to do, if the cluster cannot be used."""
        self.handle_signals()
        if (self.data_dir / "cluster.db").exists():
            raise BadRequest(
                f"{self.data_dir} holds a cluster of this machine: name another directory for the real one with --data-dir DIR"
            )
        lock = acquire_lock(self.data_dir / "lock")
        try:
            await self._run_locked()
        finally:
            lock.close()

    async def _run_locked(self) -> None:
        bind = sockets.parse_bind(self.options.bind)
        listeners = sockets.open_listeners(self.options.port, self.data_dir, bind)
        port = listeners[0].getsockname()[1]
        browser_listeners = sockets.open_browser_listeners(self.data_dir, port, "")
        async with AsyncExitStack() as stack:
            kube = await stack.enter_async_context(connect(self._kubeconfig, self.options.context))
            dialect, notice = await self._look_at_cluster(kube)
            server_files.finish_certificates(self._certificate_process, self.data_dir)
            token = server_files.ensure_token(self.data_dir / "token")
            clients: list[Kube] = []
            scheduler = await self._make_scheduler(stack, clients) if dialect is OWN else None
            operators = await self._make_operators(stack, clients, dialect) if self.options.operator == "own" else []
            users = KubeUsers.connect(
                kube, self._kubeconfig, self.options.context, token, _LIMITS, owner_loopback_only=bool(bind)
            )
            stack.push_async_callback(users.close)
            spares_evicted = bool(scheduler and operators)
            settings = await self._rest_settings(kube, replace(dialect, spares_evicted=spares_evicted), token, users)
            archive, run_elected = await self._open_archive(stack)
            probe, requests = ClusterProbe(kube, [*clients, users.client]), RequestStats()
            audit_log = AuditLog(self.data_dir)
            diagnostics, observer = KubeDiagnostics(kube, archive), RankObserver(debug_image=self.options.debug_image)
            rest_api = RestApi(
                kube,
                settings,
                diagnose=diagnostics.diagnose,
                observe_ranks=observer.observe,
                take_snapshot=scheduler.snapshot if scheduler else None,
                archive=archive,
                audit_log=audit_log,
                index_events=True,
                run_elected=run_elected,
                run_sweeps=KubeSweeps(kube, settings.sweep_key, process_name()).run,
                observe=requests.count_rest_request,
                silence=probe.silence,
            )
            cache = rest_api.cache
            kube.kept_log, kube.pods_of = partial(read_kept_log, archive), cache.pods_of
            diagnostics.pods_of, observer.pods_of, observer.nodes = cache.pods_of, cache.pods_of, cache.nodes
            proxy = ApiProxy(users.connection_for, lambda obj: require_images(obj, cache.nodes()))
            door = self.open_door(rest_api, token, browser_listeners)
            url = f"https://{sockets.HOST}:{port}"
            with loop_watchdog.LoopWatchdog(self._clock) as watchdog:
                figures = MetricSources(
                    cache.pods, cache.nodes, requests, cache.count_phases, self._clock, watchdog=watchdog,
                    scheduler=scheduler.current if scheduler else lambda: None, silent_seconds=probe.silent_seconds, live_jobs=partial(live_jobs, cache),
                )  # fmt: skip
                own = [*health_routes(cache.can_answer), metrics_route(users, figures), door.code_route]
                app = Starlette(routes=[*own, *rest_api.routes, Mount("/", app=proxy)])
                await self.serve_http(
                    _KubernetesFirst(proxy, app),
                    door,
                    listeners,
                    (
                        rest_api.run(),
                        supervise("the probe of the cluster", probe.run),
                        supervise("the logs of pods", LogCollector(kube, cache, archive, probe.wait_for_answer).run),
                        supervise("the pods of ended jobs", EndedJobs(kube, cache).run),
                        door.run(),
                        users.run(),
                        supervise("the queues of projects", QueueOwners(kube, cache).run),
                        supervise("the audit log", audit_log.run),
                        *((scheduler.run(),) if scheduler else ()),
                        *(operator.run() for operator in operators),
                    ),
                    browser_listeners=browser_listeners,
                    announce=partial(self.write_server_json, url, door, self._kubeconfig, notice),
                )

    async def _rest_settings(self, kube: Kube, dialect: Dialect, token: str, users: KubeUsers) -> RestSettings:
        sweep_key, no_sweeps = await read_sweep_key(kube, dialect)
        return RestSettings(
            token=token, version=__version__, cluster_name="kubernetes", dialect=dialect, sweep_key=sweep_key, no_sweeps=no_sweeps,
            authenticate_token=users.authenticate, look_up_token=users.look_up, issue_token=users.issue_token,
            unknown_token=UNKNOWN_TOKEN, notify=notify_settings(self.options, partial(server_denial, only_public=True)),
        )  # fmt: skip

    async def _open_archive(self, stack: AsyncExitStack) -> tuple[Archive, RunElected | None]:
        """This server's own archive and None; or the shared one of `--archive`, and the function that runs its writer in one elected
        server. Raises BadRequest, Forbidden."""
        keep = Retention(self.options.keep_runs, self.options.archive_size)
        if not self.options.archive:
            return Archive(self.data_dir / "archive", keep), None
        needs = ("servers of a shared archive do", "`rowlock manifests --archive URL`", "--archive")
        kube = await self._connect_with_rights(stack, ARCHIVE_RULES, *needs)
        cluster = objects.uid(await kube.get(kinds.NAMESPACE, "", "kube-system"))
        try:
            bucket = await asyncio.to_thread(open_bucket, self.options.archive)
            await asyncio.to_thread(claim_bucket, bucket, cluster)
        except (UnusableBucket, OSError) as error:
            raise BadRequest(str(error)) from error
        copy = directory_of(self.data_dir / "archive-shared", bucket, cluster)
        archive = SharedArchive(copy, bucket, keep, cluster=cluster)
        return archive, ArchiveLeader(kube, archive, process_name()).run

    async def _look_at_cluster(self, kube: Kube) -> tuple[Dialect, str]:
        """(the scheduler that jobs go to, notice for the start message). Raises ApiError if the cluster cannot be used."""
        await _require_access(kube, self._kubeconfig)
        dialect, consequence = await choose_dialect(kube, self.options.scheduler)
        notices = await require_kinds(
            kube, install=self.options.install_crds, has_operator=self.options.operator == "own",
            has_scheduler=dialect is OWN,
        )  # fmt: skip
        if self.options.debug_image and (missing := await missing_rights(kube, DEBUG_RULES)):
            lack = f"these credentials may not add debug containers ({', '.join(missing)})"
            notices = [*notices, f"{lack}: `rowlock manifests --debug-image IMAGE` has the right"]
        if self.options.operator == "own" and (missing := await missing_rights(kube, TRAINER_RULES)):
            lack = f"rowlock's operators leave JobSets and TrainJobs alone: these credentials lack rights ({', '.join(missing)})"
            notices = [*notices, f"{lack}, which `rowlock manifests --operator own` has"]
        return dialect, "; ".join(filter(None, (*notices, consequence)))

    async def _make_scheduler(self, stack: AsyncExitStack, clients: list[Kube]) -> KubeScheduler:
        """rowlock's scheduler. Raises Forbidden, with the missing rights, if these credentials may not schedule."""
        lack = ("the scheduler does", "`rowlock manifests`", "--scheduler own")
        clients.append(await self._connect_with_rights(stack, SCHEDULER_RULES, *lack))
        return KubeScheduler(clients[-1])

    async def _make_operators(self, stack: AsyncExitStack, clients: list[Kube], dialect: Dialect) -> list[KubeOperator]:
        """rowlock's job operators; without those of JobSets and TrainJobs if the rights for them are missing. Raises Forbidden, with the
        missing rights, and Conflict if Kubeflow's training operator is there."""
        lack = ("the job operators do", "`rowlock manifests --operator own`", "--operator own")
        clients.append(await self._connect_with_rights(stack, OPERATOR_RULES, *lack))
        process = process_name()
        operators = [KubeOperator(clients[-1], process)]
        await operators[0].refuse_second()
        if not await missing_rights(clients[-1], TRAINER_RULES):
            sets = GANGS_OF_JOB_SETS if dialect is OWN else JOB_SETS
            operators += [KubeOperator(clients[-1], process, part=part) for part in (sets, TRAIN_JOBS)]
        return operators

    async def _connect_with_rights(
        self, stack: AsyncExitStack, rules: tuple[Rule, ...], work: str, manifests: str, flag: str
    ) -> Kube:
        """A separate client for `work`; also creates the namespace of its Lease. Raises Forbidden with the missing rights."""
        kube = await stack.enter_async_context(connect(self._kubeconfig, self.options.context))
        if missing := await missing_rights(kube, rules):
            raise Forbidden(
                f"these credentials may not do what {work} ({', '.join(missing)}): give them the rights of"
                f" {manifests}, or leave out {flag}"
            )
        await ensure_system_namespace(kube)
        return kube


class _KubernetesFirst:
    """Routes between the two APIs, which share the prefix /api/v1: paths of core resources go to the cluster, others to the REST API."""

    def __init__(self, kubernetes: ApiProxy, rest: Starlette) -> None:
        self._kubernetes, self._rest = kubernetes, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = scope["path"].split("/", 4)
        core = len(parts) > 3 and parts[1:3] == ["api", "v1"] and parts[3] in _CORE_RESOURCES
        app: Any = self._kubernetes if core or parts[1:2] == ["apis"] else self._rest
        await app(scope, receive, send)


def health_routes(is_ready: Callable[[], bool]) -> list[Route]:
    """Routes for kubelet probes, without a token: `/livez` answers while the event loop runs, `/readyz` once the caches are filled."""

    async def live(_: HttpRequest) -> PlainTextResponse:
        return PlainTextResponse("ok")

    async def ready(_: HttpRequest) -> PlainTextResponse:
        return PlainTextResponse("ok") if is_ready() else PlainTextResponse("the cluster is being read", 503)

    return [Route("/livez", live), Route("/healthz", live), Route("/readyz", ready)]


def metrics_route(users: KubeUsers, sources: MetricSources) -> Route:
    """`/metrics`, for the owner and for users whose roles allow this path, as on an API server."""

    async def metrics(request: HttpRequest) -> Response:
        try:
            await users.require_path(request)
        except ApiError as error:
            return JSONResponse(error.status(), error.code)
        text, media = await render_metrics(sources, request.headers.get("accept", ""))
        return Response(text, media_type=media)

    return Route("/metrics", metrics)


_CORE_RESOURCES = frozenset(kind.plural for kind in kinds.KINDS if not kind.group)


def connect(kubeconfig: Path, context: str) -> Kube:
    """A client for the cluster of a kubeconfig. Raises BadRequest if it cannot be read or has no such context."""
    try:
        return Kube.connect(kubeconfig, context or None, limits=_LIMITS, decoder=_DECODER)
    except (ValueError, KeyError, OSError) as error:
        raise BadRequest(f"the kubeconfig {kubeconfig} cannot be used: {error}") from error


async def _require_access(kube: Kube, kubeconfig: Path) -> None:
    """Raises ApiError if the cluster does not answer or rejects the credentials. Missing rights are reported later."""
    try:
        await kube.list(kinds.NAMESPACE, limit=1)
    except Forbidden:
        return  # the credentials are valid
    except ApiError as error:
        message = f"the cluster of {kubeconfig} cannot be used: {error.message}"
        raise type(error)(message) from error
