"""The REST API as an application: routes, one shape of errors, and `RestApi`, which `assembly.py` wires in.

    rest = RestApi(api, RestSettings(token=..., user=...))
    app = Starlette(routes=[*rest.routes, *others])        # before the Kubernetes API's catch-all
    tasks.create_task(rest.run())                          # keeps the cache; reads wait until it has synced

An endpoint takes a `RestCall` and returns JSON (or a Response); every ApiError becomes Run:ai's Error body here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.datastructures import URLPath
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound, Route
from starlette.types import Receive, Scope, Send

from rowlock.accounts.login_limits import LoginLimits
from rowlock.api import Api, ObservedView
from rowlock.archive.archive import Archive
from rowlock.audit.audit_log import AuditLog
from rowlock.authentication.cluster_refusals import refusal_for_owner
from rowlock.controllers.read_your_writes import ReadYourWrites
from rowlock.controllers.supervisor import supervise
from rowlock.errors import ApiError, Internal, NotFound, Unauthorized, Unsupported
from rowlock.http_server.connection_limits import client_of
from rowlock.rest import applications
from rowlock.rest.accounts.provider_logins import ProviderLogins, describe_logins
from rowlock.rest.authentication import Authenticator
from rowlock.rest.call import (
    MAX_TOKEN_BODY_BYTES,
    AppContext,
    Diagnose,
    Drain,
    Endpoint,
    ImageProblems,
    JsonResult,
    ObserveRanks,
    PodRemarks,
    RestCall,
    RestSettings,
    SnapshotSource,
    error_body,
    json_response,
)
from rowlock.rest.cluster_view.queue import WaitingOrder
from rowlock.rest.event_index import EventIndex
from rowlock.rest.hours.idle import IdleJobs
from rowlock.rest.informers import InformerCache
from rowlock.rest.inventory.scope_history import ScopeHistory
from rowlock.rest.log_streams.log_response import LogResponse
from rowlock.rest.notifications.notifier import Notifier
from rowlock.rest.openapi.refused_routes import PREFIXES, methods_of_ids, refusal_of
from rowlock.rest.rights import AuthorizedApi, Right
from rowlock.rest.routes import ROUTES, RUNAI_DOOR, paths_served
from rowlock.rest.run_history.recorder import RunRecorder
from rowlock.rest.run_history.standby import RunElected, Standby
from rowlock.rest.sweeps.search_loop import RunSweeps, SweepSearch
from rowlock.rest.visible_cache import VisibleCache
from rowlock.rest.workload_routes.usage_history import UsageHistory
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.figures.usage_series import PodUsageSource

log = logging.getLogger(__name__)

Respond = Callable[[Request], Awaitable[Response]]


_MISTAKEN_PATHS = ("workload", "distributed", "projects", "project", "cluster", "jobs")
"""First words of paths that are refused with Run:ai's Error; all others below `/api/v1` are the Kubernetes API's, which answers a
kind that it does not know as kubectl expects it."""
_USER = "rowlock.user"
"""Key of a request's scope under which the caller's name is stored after authentication."""


class RestApi:
    """The REST API of one cluster."""

    def __init__(
        self,
        api: Api,
        settings: RestSettings,
        *,
        clock: Callable[[], float] = time.time,
        take_snapshot: SnapshotSource = None,
        diagnose: Diagnose = None,
        observe_ranks: ObserveRanks = None,
        image_problems: ImageProblems = None,
        pod_remarks: PodRemarks = None,
        drain: Drain | None = None,
        diagnosis_message: Callable[[str, str], str] | None = None,
        observe: Callable[[str, str, int, float], None] | None = None,
        archive: Archive | None = None,
        pod_usage: PodUsageSource | None = None,
        audit_log: AuditLog | None = None,
        index_events: bool = False,
        run_elected: RunElected | None = None,
        run_sweeps: RunSweeps | None = None,
        silence: Callable[[], str] = lambda: "",
        view: ObservedView | None = None,
    ) -> None:
        """`view`: the store's view, if the store is in this process. `run_elected` runs the recorder of runs while this server is the leader, and
        `run_sweeps` likewise what goes on with sweeps.
        `index_events`: keep an index of Events here, because the cluster has none. `observe` is called after each request with method, route,
        code and seconds. `archive` records runs. `pod_usage` has the usage of pods. `silence` says why the cache may be stale, or ""."""
        self._observe, self._audit_log, self._silence = observe, audit_log, silence
        self.settings = settings
        self.cache = InformerCache(api, settings.cluster_id, diagnosis_message, clock, pod_usage=pod_usage, view=view)
        self.api = ReadYourWrites(api, self.cache)
        self.usage = UsageHistory(self.cache, clock)
        self.scopes = ScopeHistory(self.cache, self.usage, pod_usage, clock)
        self.events = EventIndex(api) if index_events else None
        self._archive, self._run_elected, self._run_sweeps = archive, run_elected, run_sweeps
        self._notifier = Notifier(self.api, settings.notify, clock, namespace_of=self.cache.namespace)
        self._recorder = RunRecorder(
            api, self.cache, archive, clock, diagnose=diagnose, on_news=self._notifier.consider, is_owed=self._notifier.is_owed
        ) if archive else None  # fmt: skip
        self._standby = (
            Standby(self._recorder, self.cache, archive, clock) if archive and self._recorder and run_elected else None
        )
        self._context = AppContext(
            self.api, self.cache, settings, clock,
            take_snapshot=take_snapshot,
            diagnose=diagnose,
            observe_ranks=observe_ranks,
            image_problems=image_problems,
            pod_remarks=pod_remarks,
            usage=self.usage,
            scopes=self.scopes,
            pod_usage=pod_usage,
            waiting_order=WaitingOrder(take_snapshot).job_uids,
            events=self.events,
            drain=drain,
            archive=archive,
            lanes=self._notifier.lanes,
            catch_up=(self._standby or self._recorder).catch_up if self._recorder else None,
        )  # fmt: skip
        self._provider_logins = ProviderLogins(settings.oidc, LoginLimits(clock), clock)
        self._logins = applications.Logins(settings, LoginLimits(clock), self._provider_logins)
        self._authenticator = Authenticator(
            settings.token, settings.user, settings.authenticate_token, settings.look_up_token, settings.unknown_token
        )
        self._known_routes = self._make_routes()

    async def run(self) -> None:
        """Keep the cache up to date and record what workloads hold, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.cache.run(), name="cache")
            tasks.create_task(supervise("the usage of workloads", self.usage.run), name="usage of workloads")
            tasks.create_task(supervise("the figures of projects and nodes", self.scopes.run), name="figures of scopes")
            tasks.create_task(supervise("idle jobs", IdleJobs(self.api, self.cache).run), name="idle jobs")
            if self.events:
                index = partial(self._index_events, self.events)
                tasks.create_task(supervise("the index of events", index), name="events")
            if self._archive and self._recorder:
                tasks.create_task(self._record_runs(self._archive, self._recorder), name="runs")
                tasks.create_task(supervise("notifications", self._notifier.run), name="notifications")
            if self.settings.sweep_key:
                search = SweepSearch(self._context).run
                run_sweeps = partial(self._run_sweeps, search) if self._run_sweeps else search
                tasks.create_task(supervise("sweeps", run_sweeps), name="sweeps")
            if self._standby:
                tasks.create_task(supervise("what was seen of runs", self._standby.run), name="notes about runs")

    async def _index_events(self, events: EventIndex) -> None:
        """Run the index of Events once the cache can answer, since a large cluster has more Events than pods and no answer needs the index."""
        await self.cache.wait_until("", self.cache.can_answer, timeout=None)
        await events.run()

    async def _record_runs(self, archive: Archive, recorder: RunRecorder) -> None:
        """Run archive and recorder. The recorder ends first, so that the archive writes what it still holds."""
        archiving = asyncio.create_task(archive.run(), name="archive")
        try:
            await (recorder.run() if self._run_elected is None else self._run_elected(recorder.run))
        finally:
            archiving.cancel()
            await asyncio.wait({archiving})

    @property
    def routes(self) -> list[BaseRoute]:
        """Every route of the API: those of `ROUTES`, then routes that refuse unknown paths below its prefixes with
        Run:ai's Error."""
        first_words = {path.split("/")[3] for _, path, _, _ in ROUTES if paths_served(path)[0] == path}
        prefixes = sorted(first_words | set(_MISTAKEN_PATHS) | {"token", "login"})
        everything_else = [one for p in prefixes for one in (f"/api/v1/{p}", f"/api/v1/{p}/{{rest:path}}")]
        everything_else += ["/api/v2/{rest:path}"]
        everything_else += [one for prefix in PREFIXES for one in (prefix, f"{prefix}/{{rest:path}}")]
        everything_else += [RUNAI_DOOR, f"{RUNAI_DOOR}/{{rest:path}}"]
        refusals = [UnknownPath(path, self._serve_unmatched) for path in everything_else]
        mistaken = [Route(p, self._serve_unmatched, methods=m) for p, m in methods_of_ids(self._known_routes).items()]
        return [RouteIndex([*mistaken, *self._known_routes, *refusals])]

    def _make_routes(self) -> list[Route]:
        served = [
            (method, path, self._count_requests(path, self._endpoint(serve, right)))
            for method, path, right, serve in ROUTES
        ]
        for method, path, respond in (
            ("POST", "/api/v1/token", self._exchange_token),
            ("POST", "/api/v2/token", self._exchange_form),
            ("GET", "/api/v1/login", self._show_logins),
            ("POST", "/api/v1/login/device", self._begin_device_login),
            ("POST", "/api/v1/login/browser", self._begin_browser_login),
        ):
            served.append((method, path, self._count_requests(path, respond)))
        return [Route(one, respond, methods=[method]) for method, path, respond in served for one in paths_served(path)]

    def route(self, method: str, path: str, right: Right, serve: Endpoint) -> Route:
        """Make a route for an endpoint outside of this room; it authenticates, authorizes and reports errors as all
        others do."""
        return Route(path, self._count_requests(path, self._endpoint(serve, right)), methods=[method])

    async def check_token(self, token: str, address: str) -> None:
        """Raises Unauthorized when a token is no longer valid. `address`: the local address at which the request arrived."""
        look_up, authenticate = self.settings.look_up_token, self.settings.authenticate_token
        if token == self.settings.token or authenticate is None:
            return
        if look_up is not None:
            await look_up(token)
        if authenticate(token, address) is None:
            raise Unauthorized(self.settings.unknown_token)

    def _caller_check(self, request: Request) -> Callable[[], Awaitable[None]]:
        """A function that raises Unauthorized once the caller's token is no longer valid."""
        token = request.headers.get("authorization", "").partition(" ")[2].strip()
        address = str((request.scope.get("server") or ("",))[0])
        return lambda: self.check_token(token, address)

    def record_login(self, user: str, address: str, path: str, code: int) -> None:
        """Write a login at the web UI to the audit log."""
        if self._audit_log is not None:
            self._audit_log.record("ui", user, address, "POST", path, code=code)

    def _count_requests(self, path: str, respond: Respond) -> Respond:
        observe, audit_log = self._observe, self._audit_log
        if observe is None and audit_log is None:
            return respond

        async def respond_and_count(request: Request) -> Response:
            began, code = time.perf_counter(), 499  # nginx's code for a client that disconnected
            try:
                response = await respond(request)
                code = response.status_code
                return response
            finally:
                if observe is not None:
                    observe(request.method, path, code, time.perf_counter() - began)
                if audit_log is not None:
                    user = request.scope.get(_USER, "")
                    audit_log.record(
                        "rest", user, _client_address(request), request.method, request.url.path, code=code
                    )

        return respond_and_count

    def _endpoint(self, serve: Endpoint, right: Right) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            told: list[str] = []
            async with _error_boundary() as outcome:
                await self._authenticator.look_up(request)
                call = self._authorized_call(request, right)
                told = call.notices
                result = await self._serve(serve, call)
                if isinstance(result, LogResponse) and call.rights is not None:
                    result.check_caller = self._caller_check(request)
                if isinstance(result, JsonResult):
                    outcome.response = json_response(result.code, result.body)
                else:
                    outcome.response = result if isinstance(result, Response) else json_response(200, result)
            notices = [*filter(None, [self._silence()]), *self.cache.hidden.sentences(), *told]
            if notices and _USER in request.scope:  # only for authenticated callers
                outcome.response.headers["warning"] = _warning_header("; ".join(notices))
            return outcome.response

        return respond

    async def _serve(self, serve: Endpoint, call: RestCall) -> Any:
        """Call the endpoint once the cache has synced. If a real cluster refuses the server's request, its owner gets an explaining error."""
        try:
            await self.cache.wait_for_sync()
            return await serve(call)
        except ApiError as error:
            if self.settings.dialect is None or call.rights is not None:
                raise
            raise refusal_for_owner(error) from error

    def _authorized_call(self, request: Request, right: Right) -> RestCall:
        """Authenticate and authorize a request. Returns a call whose context shows and changes only what the caller may
        see and change. Raises Unauthorized, Forbidden."""
        principal, context = self._authenticator.authenticate(request), self._context
        request.scope[_USER] = principal.name
        if principal.api is not None:
            context = replace(context, api=ReadYourWrites(principal.api, self.cache))
        if (rights := principal.rights) is None:
            return RestCall(context, request, principal.name, None, right)
        api, cache = AuthorizedApi(context.api, rights), VisibleCache(self.cache, rights)
        call = RestCall(
            replace(context, api=api, cache=cache, server_api=self.api), request, principal.name, rights, right
        )
        if right.scope == "cluster" and right.kind is not None:
            call.require(right.verb, right.kind, subresource=right.subresource)
        return call

    async def _exchange_token(self, request: Request) -> Response:
        async with _error_boundary() as outcome:
            body = await RestCall(self._context, request, "").json(MAX_TOKEN_BODY_BYTES)
            request.scope[_USER] = self._logins.find_account_name(body)
            outcome.response = json_response(
                200, await self._logins.exchange(body, client_of(_client_address(request)))
            )
        return outcome.response

    async def _exchange_form(self, request: Request) -> Response:
        async with _error_boundary() as outcome:
            body = await RestCall(self._context, request, "").body(MAX_TOKEN_BODY_BYTES)
            outcome.response = json_response(
                *await self._logins.exchange_form(body, client_of(_client_address(request)))
            )
        return outcome.response

    async def _show_logins(self, request: Request) -> Response:
        async with _error_boundary() as outcome:
            RestCall(self._context, request, "").validate_query()
            outcome.response = json_response(200, describe_logins(self._context.settings))
        return outcome.response

    async def _begin_device_login(self, request: Request) -> Response:
        async with _error_boundary() as outcome:
            client = client_of(_client_address(request))
            outcome.response = json_response(200, await self._provider_logins.begin_device(client))
        return outcome.response

    async def _begin_browser_login(self, request: Request) -> Response:
        async with _error_boundary() as outcome:
            body = await RestCall(self._context, request, "").json(MAX_TOKEN_BODY_BYTES)
            client = client_of(_client_address(request))
            outcome.response = json_response(200, await self._provider_logins.begin_browser(body, client))
        return outcome.response

    async def _serve_unmatched(self, request: Request) -> Response:
        """Answer a request that no route matches: serve it without a trailing slash if that matches, else refuse it."""
        path = request.url.path.rstrip("/")
        scope = {**request.scope, "path": path}
        matches = [(*route.matches(scope), route) for route in self._known_routes]
        literal = [one for one in matches if one[0] is not Match.NONE and "{" not in one[2].path]
        matches = literal or matches  # a literal route wins: no workload has the id `distributed`
        allowed = list[str]()
        for match, found, route in matches:
            if match is Match.FULL:
                respond: Respond = route.endpoint
                return await respond(Request({**scope, **found}, request.receive))
        async with _error_boundary() as outcome:
            await self._authenticator.look_up(request)
            self._authenticator.authenticate(request)
            if reason := refusal_of(request.method, path.removeprefix(RUNAI_DOOR)):
                raise Unsupported(f"{request.method} {path} is not served: {reason}")
            known = [route for match, _, route in matches if match is Match.PARTIAL]
            allowed += sorted({method for route in known for method in route.methods or ()} - {"HEAD"})
            if allowed:
                raise Unsupported(f"{path} knows no {request.method}; it knows {', '.join(allowed)}")
            plain_path = path.removeprefix(RUNAI_DOOR)
            known_paths = sorted({path for _, path, _, _ in ROUTES})
            raise NotFound(f"there is no {request.method} {path} in this API.{did_you_mean(plain_path, known_paths)}")
        if allowed:
            outcome.response.headers["allow"] = ", ".join(allowed)  # RFC 9110 requires it with 405
        return outcome.response


class UnknownPath(Route):
    """Refuses a path with every method, also OPTIONS and unknown methods."""

    def __init__(self, path: str, endpoint: Respond) -> None:
        super().__init__(path, endpoint)
        self.methods = None


class RouteIndex(BaseRoute):
    """Routes indexed by the first word of their path after `/api/v1/`. Starlette tries routes one after the other, and three
    hundred of them would cost every request a tenth of a millisecond."""

    def __init__(self, routes: Sequence[Route]) -> None:
        words = {_first_word(route.path) for route in routes}
        self._routes = {word: [r for r in routes if _first_word(r.path) in (word, "")] for word in (*words, "")}

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """The first route that matches path and method; else the first that matches the path."""
        partial: tuple[Match, Scope] = (Match.NONE, {})
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        for route in self._routes.get(_first_word(path), self._routes[""]):
            match, found = route.matches(scope)
            if match is Match.FULL:
                return match, {**found, _MATCHED: route}
            if match is Match.PARTIAL and partial[0] is Match.NONE:
                partial = match, {**found, _MATCHED: route}
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[_MATCHED].handle(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        raise NoMatchFound(name, path_params)  # routes have no names here


_MATCHED = "rowlock.route"
_MAX_WARNING = 4000
"""Most characters of the header; proxies refuse more than eight thousand."""


def _warning_header(sentence: str) -> str:
    """The header `Warning` as Kubernetes' API sends it, of one line and ASCII; `rowlock` prints it to stderr."""
    text = " ".join(sentence.split())[:_MAX_WARNING].encode("ascii", "replace").decode()
    return '299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _first_word(path: str) -> str:
    """The word after `/api/v1/` or `/api/v2/`, with or without the prefix `/runai`; "" when there is none, or any."""
    words = path.removeprefix(RUNAI_DOOR).split("/", 4)
    return words[3] if len(words) > 3 and words[1] == "api" and not words[3].startswith("{") else ""


def _client_address(request: Request) -> str:
    return request.client.host if request.client else ""


@dataclass(slots=True)
class _Outcome:
    response: Response


@asynccontextmanager
async def _error_boundary() -> AsyncIterator[_Outcome]:
    """Turns unexpected errors into an answer without a stack trace; the only place of the REST API that catches all
    errors."""
    outcome = _Outcome(json_response(500, {"code": 500, "message": "no answer was made", "details": ""}))
    try:
        yield outcome
    except ApiError as error:
        outcome.response = json_response(error.code, error_body(error))
    except Exception as error:
        log.exception("a request failed unexpectedly")
        internal = Internal(f"the server failed unexpectedly ({type(error).__name__}: {error}); its log says more")
        outcome.response = json_response(500, error_body(internal))


def routes(api: Api, settings: RestSettings) -> list[BaseRoute]:
    """The routes of a `RestApi` that does not run, to look at them in docs and tests."""
    return RestApi(api, settings).routes
