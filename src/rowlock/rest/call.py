"""The types of an endpoint: it takes a `RestCall` with its `AppContext`, and returns JSON, a `JsonResult` or a Response."""

from __future__ import annotations

import getpass
import os
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rowlock.accounts.user_accounts import UserAccount, UserAccounts
from rowlock.accounts.user_credentials import UserCredentials
from rowlock.api import Api
from rowlock.archive.archive import Archive
from rowlock.authentication.oidc.logins import OidcLogins
from rowlock.controllers.file_reads import FileReads
from rowlock.controllers.turn_budget import FairTurns
from rowlock.curves.curves import Curve
from rowlock.curves.event_records import EventFile, RunPlaces
from rowlock.errors import ApiError, BadRequest
from rowlock.gangs.dialects import Dialect
from rowlock.http_server.request_body import decode_json, read_body
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.authentication import UNKNOWN_TOKEN, TokenAuthenticator, TokenLookup
from rowlock.rest.event_index import EventIndex
from rowlock.rest.informers import InformerCache
from rowlock.rest.list_rows.list_items import ListItems
from rowlock.rest.list_rows.selection import SortedRows
from rowlock.rest.notifications.lanes import Lanes
from rowlock.rest.notifications.settings import NotifySettings
from rowlock.rest.rights import EVERYBODY, Right, Rights, require
from rowlock.rest.run_history.checkpoint_use import CheckpointReservations
from rowlock.scheduling.model.snapshot import Snapshot
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.figures.usage_series import PodUsageSource, UsageSeries

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Most bytes of a request body."""
_FILTER, _MAX_QUOTED = "filterBy", 60
MAX_TOKEN_BODY_BYTES = 16 * 1024
"""The same before authentication, since decoding JSON takes twenty times its size in memory."""


class AccessToken(NamedTuple):
    """The result of a login: an access token and its lifetime in seconds."""

    token: str
    seconds: int


TokenIssuer = Callable[[str, str], Awaitable[AccessToken | None]]
"""(client id, secret) → access token. If they are wrong it returns None, or raises InvalidCredentials with the reason."""
UserTokenIssuer = Callable[[UserAccount], Awaitable[AccessToken]]
"""Issues a token for a person whose password was checked."""


def name_of_account() -> str:
    """The user who started the server: the account's name, or its uid when it has no name (in a container with any uid)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


class RunEventFiles(Protocol):
    """TensorBoard's event files of runs on this machine. Its methods block: call them in a thread."""

    def find(self, run: RunPlaces) -> list[EventFile]: ...

    def read(self, run: RunPlaces) -> tuple[dict[str, Curve], list[str]]: ...


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The settings of the REST API. `cluster_id` "" stands for the uid of the kube-system namespace."""

    token: str | None = None
    user: str = field(default_factory=name_of_account)
    version: str = ""
    cluster_id: str = ""
    cluster_name: str = "rowlock"
    authenticate_token: TokenAuthenticator | None = None
    """Authenticates users other than the owner, when others can reach the server."""
    look_up_token: TokenLookup | None = None
    """Looks up tokens that the server does not know itself."""
    unknown_token: str = UNKNOWN_TOKEN
    """The error message for an unknown token."""
    issue_token: TokenIssuer | None = None
    """Issues tokens to applications; None when there are none."""
    accounts: UserAccounts | None = None
    """Local accounts with passwords; None when something else authenticates users."""
    credentials: UserCredentials | None = None
    """Personal credentials; None when this server keeps none."""
    issue_user_token: UserTokenIssuer | None = None
    """Issues tokens to these accounts; set when `accounts` is."""
    oidc: OidcLogins | None = None
    """Logins at the identity provider; None when none is configured."""
    dialect: Dialect | None = None
    """How jobs request gang scheduling from a real cluster's scheduler; None for the embedded scheduler."""
    sweep_key: str = ""
    """With it the server seals sweeps; "" = it makes no runs of them."""
    no_sweeps: str = ""
    """Why it makes none, as the end of a sentence."""
    event_files: RunEventFiles | None = None
    """The event files of runs; None without embedded nodes: then they lie in volumes that this server does not see."""
    notify: NotifySettings = field(default_factory=NotifySettings)
    """Where the operator is told about all jobs, and where jobs may tell things."""
    read_program: Callable[[Object], str] | None = None
    """Reads the program of a pod like this from the disk, "" when it cannot; None without embedded nodes."""


SnapshotSource = Callable[[], Snapshot] | None
"""Takes a snapshot of the scheduler's input; None when our scheduler does not run."""
Diagnose = Callable[[Object], Awaitable[dict[str, Any]]] | None
"""The evidence about failed and hanging ranks of a job; None without embedded nodes."""

ObserveRanks = Callable[[Api, Object], Awaitable[dict[str, Any]]] | None
"""What a job's running ranks are doing (`verdict`, `ranks`), read with the rights of the given Api. None if `Diagnose` reports it."""

ImageProblems = Callable[[Object], Awaitable[list[str]]] | None
"""Why the images of a pod like this cannot run here; None without embedded nodes."""
PodRemarks = Callable[[Object], list[str]] | None


CatchUp = Callable[[str], Awaitable[None]] | None


async def _no_order() -> list[str] | None:
    """Used when our scheduler does not run."""
    return None


class UsageSamples(Protocol):
    """The figures of workloads over time."""

    def samples(self, uid: str, times: Sequence[float]) -> list[tuple[Decimal, ...] | None]: ...


class ScopeFigures(Protocol):
    """The figures of projects, departments, node pools, nodes and the cluster over time, by kind and name."""

    def steps(self, key: tuple[str, str], times: Sequence[float]) -> list[tuple[Decimal, ...] | None]: ...

    def series(self, key: tuple[str, str]) -> UsageSeries | None: ...

    def overtime(self, key: tuple[str, str]) -> dict[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class Drain:
    """How a cluster is made ready for the end of its server."""

    begin: Callable[[float], None]
    """Makes the cluster refuse new jobs for this many seconds."""
    ending_pods: Callable[[], list[str]]
    """`namespace/name` of the pods that a server which is stopped should wait for."""


@dataclass(frozen=True, slots=True)
class AppContext:
    """What endpoints share: the cluster, its cache, settings and sources of figures."""

    api: Api
    cache: InformerCache
    settings: RestSettings
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    take_snapshot: SnapshotSource = None
    diagnose: Diagnose = None
    observe_ranks: ObserveRanks = None
    image_problems: ImageProblems = None
    reading_event_files: FileReads = field(default_factory=FileReads)
    pod_remarks: PodRemarks = None
    """What a pod like this requests but does not get on this machine; None without embedded nodes."""
    usage: UsageSamples | None = None
    """What workloads held over time; None when not recorded."""
    scopes: ScopeFigures | None = None
    """The same for projects, departments, node pools, nodes and the cluster."""
    pod_usage: PodUsageSource | None = None
    """What pods use; None when it is not measured."""
    archive: Archive | None = None
    """The archive of runs; None when there is none."""
    lanes: Lanes | None = None
    """The ways to receivers of notifications."""
    catch_up: CatchUp = None
    """Makes the recorder write deleted jobs and the record of one job, before the archive is read."""
    waiting_order: Callable[[], Awaitable[list[str] | None]] = _no_order
    """The uids of waiting jobs in the scheduler's order; None when our scheduler does not run."""
    server_api: Api | None = None
    """The cluster with the server's own credentials, for facts that all callers may read about themselves. None when it is
    `api`."""
    planning: FairTurns = field(default_factory=FairTurns)
    """Turns of users to ask the planner, one question at a time: each computes plans of the whole cluster."""
    drawing: FairTurns = field(default_factory=lambda: FairTurns(2))
    """Turns of users to have the points of a sweep drawn: a random search of many parameters takes a second of a thread."""
    archive_reads: FairTurns = field(default_factory=lambda: FairTurns(2))
    """Turns of users to have many runs of the archive read: ten thousand of them take seconds of a thread."""
    reserved_checkpoints: CheckpointReservations = field(default_factory=dict)
    """Checkpoint directories of jobs that requests are about to start, for all requests."""
    list_items: ListItems = field(default_factory=ListItems)
    """The items that lists of workloads showed last, cached for all requests."""
    sorted_rows: SortedRows = field(default_factory=SortedRows)
    """The whole list of workloads in recently requested orders, cached for all requests."""
    run_metrics: OrderedDict[str, tuple[str, dict[str, tuple[float, float, float]]]] = field(
        default_factory=OrderedDict
    )
    """Metrics of runs of sweeps that have ended (`rest/sweeps/metrics.py`), for all requests."""
    events: EventIndex | None = None
    """An index of Events by object; None when the cluster is queried directly (the embedded store is in memory)."""
    drain: Drain | None = None
    """What a server that is about to stop can be asked; None for a real cluster."""


@dataclass(frozen=True, slots=True)
class RestCall:
    """One request, authenticated."""

    context: AppContext
    request: Request
    user: str
    rights: Rights | None = None
    """The caller's rights; None means all."""
    right: Right = EVERYBODY
    """The right that the route needs (`routes.py`)."""
    notices: list[str] = field(default_factory=list)
    """Notices for the caller, sent in the header `Warning`."""

    @property
    def path(self) -> dict[str, Any]:
        """The parameters of the route's path, by name."""
        return self.request.path_params

    @property
    def query(self) -> dict[str, str]:
        """The query parameters by name; repeated filters (`filterBy`) are joined with commas. Raises BadRequest for any other name
        that occurs twice, since it would be ambiguous."""
        found: dict[str, str] = {}
        for name, value in self.request.query_params.multi_items():
            if name in found and name != _FILTER:
                raise BadRequest(f"the query parameter {name[:_MAX_QUOTED]!r} is given more than once: give it once.")
            found[name] = f"{found[name]},{value}" if name in found else value
        return found

    def require(self, verb: str, kind: Kind, namespace: str = "", *, name: str = "", subresource: str = "") -> None:
        """Raises Forbidden when the caller may not do this."""
        require(self.rights, verb, kind, namespace, name=name, subresource=subresource)

    def allows(self, verb: str, kind: Kind, namespace: str = "") -> bool:
        """Whether the caller may do this; lists leave out what the caller may not see."""
        return self.rights is None or self.rights.allows(verb, kind, namespace)

    def require_right(self, kind: Kind, namespace: str, name: str) -> None:
        """Require the route's own right, for this object or something that belongs to it. Raises Forbidden."""
        right = self.right
        own = right.kind in (None, kind)
        self.require(right.verb, right.kind or kind, namespace, name=name if own else "", subresource=right.subresource)

    async def body(self, limit: int = MAX_BODY_BYTES) -> bytes:
        """The raw request body. Raises TooLarge beyond `limit` bytes."""
        return await read_body(self.request, limit)

    async def json(self, limit: int = MAX_BODY_BYTES) -> Any:
        """The decoded JSON body. Raises BadRequest when it is no JSON, TooLarge beyond `limit` bytes."""
        return decode_json(await self.body(limit))

    def validate_query(self, *allowed: str) -> dict[str, str]:
        """The query parameters. Raises BadRequest when there are others than these."""
        for name in self.query:
            if name.rstrip("?") and name not in allowed:
                raise BadRequest(f"there is no query parameter {name!r}.{did_you_mean(name, allowed)}")
        return self.query

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false (the default). Raises BadRequest for others: dryRun=True must not submit a job."""
        text = self.query.get(name, "false")
        if text not in ("true", "false"):
            raise BadRequest(f"{name} must be true or false, but is {text[:_MAX_QUOTED]!r}.")
        return text == "true"


@dataclass(frozen=True, slots=True)
class JsonResult:
    """JSON with a status other than 200."""

    code: int
    body: Any


def error_body(error: ApiError) -> dict[str, Any]:
    """Run:ai's Error body; for a refused submit with the fields and the policy rules that were violated."""
    body: dict[str, Any] = {"code": error.code, "message": error.message, "details": error.reason}
    if error.causes:
        body["complianceIssues"] = [{"field": c.field, "details": c.message, "rule": c.reason} for c in error.causes]
    return body


def json_response(code: int, body: Any) -> Response:
    """JSON with this HTTP status code."""
    return Response(msgspec.json.encode(body), code, media_type="application/json")


Endpoint = Callable[[RestCall], Awaitable[Any]]
