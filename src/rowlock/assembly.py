"""The assembly: one embedded cluster and its faces (Kubernetes API, REST) on one HTTPS port.

The only module that knows both a cluster and its faces. When everything answers, it writes the kubeconfig and `server.json`
into the data directory. SIGTERM and SIGINT shut it down gracefully: it waits for pods that end anyway, the others keep running.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from rowlock import __version__, kinds, server_files
from rowlock.accounts.local_login import prepare_public_directory
from rowlock.accounts.user_accounts import UserAccounts
from rowlock.accounts.user_credentials import UserCredentials
from rowlock.apiserver.server import application
from rowlock.apiserver.server.settings import ApiServerSettings, audit_into
from rowlock.archive.retention import Retention
from rowlock.audit.audit_log import AuditLog
from rowlock.authentication import users
from rowlock.authentication.access_tokens import AccessTokens
from rowlock.browser.door import BrowserDoor, Elsewhere
from rowlock.cluster import ClusterSettings, LocalCluster
from rowlock.controllers import heap_collector, loop_watchdog
from rowlock.controllers.supervisor import supervise
from rowlock.diagnostics.event_files import EventFiles
from rowlock.errors import ApiError
from rowlock.http_server import connection_limits, http_protocol, sockets
from rowlock.http_server import tls as server_tls
from rowlock.http_server.shortages import CANNOT_START, find_shortage
from rowlock.identity import token_sources
from rowlock.identity.token_sources import IdentityProvider
from rowlock.kubelet.network.egress_policy import server_denial
from rowlock.kubelet.worker.settings import KubeletSettings
from rowlock.metrics.exposition import MetricSources, render_metrics
from rowlock.metrics.request_stats import RequestStats
from rowlock.rest.app import RestApi
from rowlock.rest.call import Drain, RestSettings
from rowlock.rest.hours.live_jobs import live_jobs
from rowlock.rest.notifications.settings import notify_settings
from rowlock.scheduling.controller import Scheduler
from rowlock.scheduling.model.snapshot import Snapshot
from rowlock.server_settings import ServerSettings
from rowlock.storage.store import Store

_LARGE_DATABASE = 16 << 20
"""Bytes of `cluster.db` above which a start reports its progress (`rowlock up` shows lines that begin with `starting: `)."""
_MANY_OBJECTS = 10_000


def _current_snapshot(scheduler: Scheduler, store: Store) -> Snapshot:
    """The snapshot from which the scheduler would plan now."""
    return scheduler.snapshot(store.view, time.time())


class _ByListener:
    """An ASGI application for two kinds of listeners: requests to the browsers' ports go to the door, all others to the API."""

    def __init__(self, api: ASGIApp, door: BrowserDoor, browser_ports: tuple[int, ...]) -> None:
        self._api, self._door, self._browser_ports = api, door, frozenset(browser_ports)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Dispatch by port. It returns the application's coroutine instead of being one, to save time in each API request."""
        port = (scope.get("server") or ("", 0))[1]
        return (self._door if port in self._browser_ports else self._api)(scope, receive, send)


class Server:
    """One embedded cluster and its faces on one HTTPS port."""

    def __init__(
        self,
        options: ServerSettings,
        certificate_process: subprocess.Popen[bytes],
        clock: loop_watchdog.TurnClock,
    ) -> None:
        self.options, self._certificate_process, self._clock = options, certificate_process, clock
        self.data_dir: Path = options.data_dir.absolute()
        self.stop_event, self.urgent_event = asyncio.Event(), asyncio.Event()
        """The first signal sets the one, and a further one the other: then the server waits for no pod."""
        self.identity_provider = IdentityProvider.from_flags(options)
        self._port = 0
        """The HTTPS port, once listening; 0 before."""

    def cluster(self) -> LocalCluster:
        settings = self.settings()
        with suppress(OSError):
            size = (self.data_dir / "cluster.db").stat().st_size
            if size > _LARGE_DATABASE:
                print(f"starting: reading cluster.db ({size >> 20} MiB)", flush=True)
        cluster = LocalCluster(settings)
        count = sum(cluster.store.view.count(kind) for kind in kinds.KINDS)
        if count > _MANY_OBJECTS:
            print(f"starting: {count} objects are read; looking at the machine and its pods", flush=True)
        return cluster

    def settings(self) -> ClusterSettings:
        """The cluster's settings from the flags. Waits for the child process that makes the certificates."""
        options = self.options
        disabled = frozenset(part for part in options.without.split(",") if part)
        kubelet = KubeletSettings(
            data_dir=self.data_dir,
            nodes=options.nodes,
            gpus_per_node=options.gpus_per_node,
            simulated_gpus=options.simulated_gpus,
            cpus_per_node=options.cpus_per_node,
            max_pods=options.max_pods,
            network=options.network,
            host_ports=tuple(int(port) for port in options.host_ports.split(",") if port),
            runtime=options.runtime,
            restart_backoff=options.restart_backoff,
            warm_start=options.warm_start == "auto",
            log_limit=options.log_limit,
            pids_limit=options.pids_limit,
            keep_checkpoints=options.keep_checkpoints,
            api_port=self._port,
        )
        server_files.finish_certificates(self._certificate_process, self.data_dir)
        ca_certificate = (self.data_dir / "ca.crt").read_text()
        return ClusterSettings(
            self.data_dir,
            kubelet,
            disabled,
            options.pretend_nodes,
            ca_certificate,
            parity=options.parity,
            half_life=options.half_life,
            event_ttl=options.event_ttl,
            retention=Retention(options.keep_runs, options.archive_size),
            requires_unix_accounts=options.system is not None,
            accepts_loss=options.accept_loss,
            sweep_key=server_files.ensure_token(self.data_dir / "sweep.key"),
        )

    def handle_signals(self) -> None:
        """From now on SIGTERM and SIGINT ask the server to end."""
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self._ask_to_stop)

    def _ask_to_stop(self) -> None:
        (self.urgent_event if self.stop_event.is_set() else self.stop_event).set()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self.handle_signals()
        listeners = sockets.open_listeners(self.options.port, self.data_dir, sockets.parse_bind(self.options.bind))
        self._port = listeners[0].getsockname()[1]
        browser_listeners = sockets.open_browser_listeners(self.data_dir, self._port, self.options.ui_address)
        async with self.cluster() as cluster:
            await self._serve(cluster, listeners, browser_listeners)

    async def _serve(
        self,
        cluster: LocalCluster,
        listeners: list[socket.socket],
        browser_listeners: sockets.BrowserListeners,
    ) -> None:
        watchdog = loop_watchdog.LoopWatchdog(self._clock)
        token, requests = server_files.ensure_token(self.data_dir / "token"), RequestStats()
        accounts, audit_log = UserAccounts.open(self.data_dir), AuditLog(self.data_dir)
        api_settings = self._api_settings(token, cluster, accounts)
        authorizer = cluster.authorizer
        take_snapshot = (
            None if cluster.scheduler is None else partial(_current_snapshot, cluster.scheduler, cluster.store)
        )
        provider = self.identity_provider
        view = cluster.store.view
        rest_api = RestApi(
            cluster.store,
            RestSettings(
                token=token,
                version=__version__,
                authenticate_token=token_sources.rest_authenticator(api_settings, authorizer),
                issue_token=token_sources.token_issuer(api_settings),
                accounts=accounts,
                credentials=UserCredentials.open(self.data_dir),
                issue_user_token=token_sources.user_token_issuer(api_settings),
                oidc=provider.logins if provider else None,
                look_up_token=provider.tokens.look_up if provider else None,
                sweep_key=cluster.settings.sweep_key,
                event_files=EventFiles(self.data_dir) if cluster.kubelet else None,
                notify=notify_settings(self.options, server_denial),
                read_program=cluster.kubelet.engine_images.read_program if cluster.kubelet else None,
            ),
            take_snapshot=take_snapshot,
            diagnose=cluster.diagnostics.diagnose_job if cluster.diagnostics else None,
            image_problems=cluster.kubelet.engine_images.image_problems if cluster.kubelet else None,
            pod_remarks=cluster.kubelet.pod_remarks if cluster.kubelet else None,
            drain=Drain(cluster.drain, cluster.ending_pods),
            diagnosis_message=cluster.diagnostics.status_message if cluster.diagnostics else None,
            observe=requests.count_rest_request,
            archive=cluster.archive,
            pod_usage=cluster.kubelet.usage if cluster.kubelet else None,
            audit_log=audit_log,
            view=view,
        )
        sources = MetricSources(
            partial(view.all, kinds.POD), partial(view.all, kinds.NODE), requests, rest_api.cache.count_phases, self._clock,
            watchdog=watchdog, store=cluster.store, database=self.data_dir / "cluster.db", scheduler=lambda: cluster.scheduler,
            usage=cluster.kubelet.usage if cluster.kubelet else None, live_jobs=partial(live_jobs, rest_api.cache),
        )  # fmt: skip
        api_settings = replace(
            api_settings,
            observer=requests,
            render_metrics=partial(render_metrics, sources),
            audit=audit_into(audit_log),
        )
        exec_sessions = cluster.kubelet.streaming if cluster.kubelet else None
        door = self.open_door(rest_api, token, browser_listeners)
        work = [cluster.run(), rest_api.run(), door.run(), supervise("the audit log", audit_log.run)]
        if provider is not None:
            work.append(provider.run())
        if self.options.system is not None:
            prepare_public_directory(self.options.system)
            work.append(token_sources.local_login(api_settings, self.options.system).run())
        routes = [door.code_route, *rest_api.routes]
        app = application.application(routes, cluster.store, api_settings, exec_sessions, authorizer)
        with watchdog:  # no client is served before this, so long turns until here do not matter
            await self.serve_http(
                app,
                door,
                listeners,
                work,
                browser_listeners=browser_listeners,
                announce=partial(self._announce, listeners[0], token, door, cluster.notice),
                before_stop=partial(cluster.let_pods_end, self.urgent_event),
            )

    async def serve_http(
        self,
        app: ASGIApp,
        door: BrowserDoor,
        listeners: list[socket.socket],
        work: Sequence[Coroutine[Any, Any, None]],
        *,
        browser_listeners: sockets.BrowserListeners,
        announce: Callable[[], None],
        before_stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Serve the application and run its background work until `stop_event` is set; call `announce` once it answers."""
        door.exec_app = app
        browser_port, ui_port = browser_listeners.ports
        listeners = [*listeners, *browser_listeners.sockets]
        tls = server_tls.server_context(self.data_dir / "server.crt", self.data_dir / "server.key")
        if self.options.tls_cert and self.options.tls_key:
            server_tls.NamedCertificate(self.options.tls_cert, self.options.tls_key).install(tls)
        config = uvicorn.Config(
            _ByListener(app, door, (browser_port, ui_port)), interface="asgi3", log_level="warning", lifespan="off", ws="none", loop="asyncio", timeout_graceful_shutdown=2, access_log=False, timeout_keep_alive=120,
            http=http_protocol.protocol_factory(tls, browser_port, self._ui_certificate(ui_port), descriptors=self._clock.clients),
            proxy_headers=False, server_header=False,
            ws_ping_interval=30, ws_ping_timeout=None, ws_per_message_deflate=False,
            backlog=connection_limits.accept_limit(connection_limits.connection_limit()),
        )  # fmt: skip
        server = uvicorn.Server(config)
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(part) for part in (*work, heap_collector.HeapCollector(self._clock).run())]
            serving = tasks.create_task(server._serve(listeners))
            while not server.started:
                await asyncio.sleep(0.002)
            for listener in listeners:
                self._clock.clients.add(listener.fileno())
                listener.listen(
                    connection_limits.ACCEPT_QUEUE
                )  # asyncio uses `backlog` both for the queue and for the connections accepted in one turn
            heap_collector.tune()
            await asyncio.to_thread(announce)  # it fsyncs files, which must not block the event loop
            await self.stop_event.wait()
            if before_stop is not None:
                await before_stop()
            server.should_exit = True
            await serving
            for task in background:
                task.cancel()

    def open_door(self, rest_api: RestApi, token: str, listeners: sockets.BrowserListeners) -> BrowserDoor:
        """Create the `BrowserDoor`, for the loopback port and, if configured, another address."""
        options = self.options
        port, ui_port = listeners.ports
        names = sockets.server_names(sockets.parse_ui_address(options.ui_address)[0], options.tls_san)
        return BrowserDoor(
            rest_api, token, port, version=__version__, elsewhere=Elsewhere(ui_port, tuple(names)) if ui_port else None
        )

    def _ui_certificate(self, ui_port: int) -> tuple[int, ssl.SSLContext] | None:
        """The web UI's port and TLS context, with the certificate of the flags, else the server's own. Raises OSError."""
        options = self.options
        if not ui_port:
            return None
        certificate, key = (
            options.ui_cert or self.data_dir / "server.crt",
            options.ui_key or self.data_dir / "server.key",
        )
        return ui_port, server_tls.server_context(certificate, key)

    def _api_settings(self, token: str, cluster: LocalCluster, accounts: UserAccounts) -> ApiServerSettings:
        """Which callers each listener accepts. On addresses other than loopback the owner's token is refused."""
        options = self.options
        tokens = users.read_token_file(options.users) if options.users else {}
        bound_elsewhere = bool(sockets.parse_bind(options.bind) or sockets.parse_ui_address(options.ui_address)[0])
        return ApiServerSettings(
            token,
            tokens,
            owner_loopback_only=bound_elsewhere,
            service_accounts=cluster.service_accounts,
            access_tokens=AccessTokens(cluster.service_accounts, cluster.store.view, accounts),
            id_tokens=self.identity_provider.tokens if self.identity_provider else None,
            is_ready=cluster.store.takes_writes,
        )

    def _announce(self, listener: socket.socket, token: str, door: BrowserDoor, notice: str) -> None:
        """Write the files that tell clients how to reach the server; `server.json` last, because `rowlock up -d` waits for it."""
        url = f"https://{sockets.HOST}:{listener.getsockname()[1]}"
        server_files.write_file(
            self.data_dir / "kubeconfig", server_files.kubeconfig(url, self.data_dir / "ca.crt", token)
        )
        if self.options.system is not None:
            server_files.announce_to_local_users(self.data_dir, url, self.options.system)
        self.write_server_json(url, door, self.data_dir / "kubeconfig", notice)

    def write_server_json(self, url: str, door: BrowserDoor, kubeconfig_path: Path, notice: str) -> None:
        """Write `server.json`, for which `rowlock up -d` waits. `kubeconfig_path`: the kubeconfig for kubectl."""
        port = url.rpartition(":")[2]
        bind = sockets.parse_bind(self.options.bind)
        other_names = sockets.server_names(bind, self.options.tls_san) if bind or not self.options.ui_address else []
        facts = {
            "pid": os.getpid(),
            "url": url,
            "ui": door.url,
            **({"uiOthers": door.other_urls} if door.other_urls else {}),
            "others": [f"https://{f'[{name}]' if ':' in name else name}:{port}" for name in other_names],
            "started": time.time(),
            **server_files.process_identity(self.data_dir),
            "version": __version__,
            "kubeconfig": str(kubeconfig_path),
            "notice": notice,
            "flags": {k: str(v) if isinstance(v, Path) else v for k, v in self.options._asdict().items()},
        }
        server_files.write_file(self.data_dir / "server.json", json.dumps(facts, indent=2) + "\n")
        if notice:
            print(f"warning: {notice}", flush=True)
        print(f"rowlock serves {url} (kubeconfig: {kubeconfig_path})", flush=True)


def _describe_os_error(error: OSError, options: ServerSettings) -> str:
    """One sentence that says what failed and what to do now."""
    if isinstance(error, ssl.SSLError):
        names = ", ".join(str(options.data_dir / name) for name in ("server.crt", "server.key"))
        return f"the server's certificate and its key do not belong together or are damaged ({error}): remove {names}; they are made anew"
    if error.errno == errno.EADDRINUSE and options.port:
        return f"port {options.port} is taken: choose another with --port, or leave it out"
    if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES) and not error.filename:
        return f"{error}: choose another --port or --bind, or leave them out"
    if error.filename and str(error.filename).startswith(str(options.data_dir)):
        return f"{CANNOT_START}: {error.filename} cannot be used ({error.strerror}): move it away, and it is made anew, or look at its rights"
    return f"{CANNOT_START}: {error}"


def _run(options: ServerSettings, certificate_process: subprocess.Popen[bytes], server_class: type[Server]) -> None:
    """Run the server until it is stopped. Raises ApiError, OSError when it cannot start."""
    clock = loop_watchdog.TurnClock()

    async def run() -> None:
        await server_class(options, certificate_process, clock).run()  # created here, inside its event loop

    try:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(clock)) as runner:
            runner.run(run())
    except BaseExceptionGroup as group:
        leaf: BaseException = group
        while isinstance(leaf, BaseExceptionGroup) and len(leaf.exceptions) == 1:
            leaf = leaf.exceptions[0]
        if leaf is group or isinstance(leaf, BaseExceptionGroup):
            raise
        raise leaf from leaf.__cause__


def serve(
    options: ServerSettings, certificate_process: subprocess.Popen[bytes], server_class: type[Server] = Server
) -> int:
    """Run the server; return its exit code. `certificate_process`: the child process that makes the certificates."""
    try:
        _run(options, certificate_process, server_class)
    except Exception as error:
        shortage = find_shortage(error, options.data_dir)
        if not shortage and not isinstance(error, ApiError | OSError):
            raise  # a bug: show the traceback
        print(f"error: {_refusal(error, shortage, options)}", file=sys.stderr)
        return 1
    return 0


def _refusal(error: Exception, shortage: str, options: ServerSettings) -> str:
    if shortage:
        return f"{CANNOT_START}: {shortage}"
    return _describe_os_error(error, options) if isinstance(error, OSError) else str(error)
