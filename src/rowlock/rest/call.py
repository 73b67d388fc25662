"""What an endpoint takes and gives: a `RestCall` in a `AppContext`, answered with JSON, an `JsonResult` or a Response."""

from __future__ import annotations

import asyncio
import getpass
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

import msgspec
from starlette.requests import Request

from rowlock.accounts.user_accounts import UserAccount, UserAccounts
from rowlock.api import Api
from rowlock.archive.archive import Archive
from rowlock.authentication.oidc.logins import OidcLogins
from rowlock.errors import BadRequest, TooLarge
from rowlock.gangs.dialects import Dialect
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.authentication import TokenAuthenticator, TokenLookup
from rowlock.rest.event_index import EventIndex
from rowlock.rest.informers import InformerCache
from rowlock.rest.rights import EVERYBODY, Right, Rights, require
from rowlock.scheduling.model.snapshot import Snapshot
from rowlock.workloads.body_fields import did_you_mean
from rowlock.workloads.figures.usage_series import PodUsageSource, UsageSeries

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Bytes of a request body."""
MAX_TOKEN_BODY_BYTES = 16 * 1024
"""The same where nobody knows yet who asks: JSON costs twenty times its bytes when it is decoded."""


class AccessToken(NamedTuple):
    """What a login gives, and for how many seconds."""

    token: str
    seconds: int


TokenIssuer = Callable[[str, str], Awaitable[AccessToken | None]]
"""From a client id and its secret; None where nobody logs in with them."""
UserTokenIssuer = Callable[[UserAccount], Awaitable[AccessToken]]
"""For a person who has shown his password."""


def name_of_account() -> str:
    """Who started the server: the account's name, or its number where the machine knows no name for it (a container
    that runs as any uid)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@dataclass(frozen=True, slots=True)
class RestSettings:
    """What the face must be told. `cluster_id` "" takes the uid of the kube-system namespace."""

    token: str | None = None
    user: str = field(default_factory=name_of_account)
    version: str = ""
    cluster_id: str = ""
    cluster_name: str = "rowlock"
    authenticate_token: TokenAuthenticator | None = None
    """Who may come in besides the owner, where others can reach the server."""
    look_up_token: TokenLookup | None = None
    """Finds out whose a token is, where the server does not know it itself."""
    issue_token: TokenIssuer | None = None
    """Logs applications in; None where there are none."""
    accounts: UserAccounts | None = None
    """People with passwords; None where others know who comes."""
    issue_user_token: UserTokenIssuer | None = None
    """Logs them in; given where there are accounts."""
    oidc: OidcLogins | None = None
    """Logins at the identity provider; None where none is configured."""
    dialect: Dialect | None = None
    """How jobs ask the scheduler of a real cluster; None where the embedded one places them."""


SnapshotSource = Callable[[], Snapshot] | None
"""What the scheduler would plan from now; None where none of ours runs."""
Diagnose = Callable[[Object], Awaitable[dict[str, Any]]] | None
"""What is known of how a job's ranks died and where they stand; None where no node of ours runs."""

ImageProblems = Callable[[Object], Awaitable[list[str]]] | None
"""Why programs of such a pod could not begin, for want of images; None where no node of ours runs."""


CatchUp = Callable[[str], Awaitable[None]] | None


async def _no_order() -> list[str] | None:
    """Where no scheduler of ours runs."""
    return None


class UsageSamples(Protocol):
    """The figures of workloads over time."""

    def samples(self, uid: str, times: Sequence[float]) -> list[tuple[Decimal, ...] | None]: ...


class ScopeFigures(Protocol):
    """The figures of projects, departments, node pools, nodes and the cluster over time, by kind and name."""

    def steps(self, key: tuple[str, str], times: Sequence[float]) -> list[tuple[Decimal, ...] | None]: ...

    def series(self, key: tuple[str, str]) -> UsageSeries | None: ...


@dataclass(frozen=True, slots=True)
class AppContext:
    """What every endpoint works with."""

    api: Api
    cache: InformerCache
    settings: RestSettings
    clock: Callable[[], float] = time.time
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    take_snapshot: SnapshotSource = None
    diagnose: Diagnose = None
    image_problems: ImageProblems = None
    usage: UsageSamples | None = None
    """What workloads held over time; None where nobody keeps it."""
    scopes: ScopeFigures | None = None
    """The same of projects, departments, node pools and the cluster."""
    pod_usage: PodUsageSource | None = None
    """What pods use; None where nobody measures it."""
    archive: Archive | None = None
    """What ran; None where nothing is archived."""
    catch_up: CatchUp = None
    """Writes what the recorder of runs holds, before the archive is read: what has gone, and one job's record."""
    waiting_order: Callable[[], Awaitable[list[str] | None]] = _no_order
    """The uids of jobs that wait, in the scheduler's order; None where none of ours runs."""
    server_api: Api | None = None
    """The cluster as the server sees it, whoever asks: for what everybody may read of himself. None where it is `api`."""
    planning: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever asks the planner something for one user: they come one after the other."""
    events: EventIndex | None = None
    """The cluster's Events by what they are about; None where the cluster itself is asked, which is quick in memory."""
    drain: Callable[[float], None] | None = None
    """Refuses new jobs for so many seconds; None where the cluster is not ours to stop."""


@dataclass(frozen=True, slots=True)
class RestCall:
    """One request, authenticated."""

    context: AppContext
    request: Request
    user: str
    rights: Rights | None = None
    """What the caller may do; None is everything."""
    right: Right = EVERYBODY
    """What the route amounts to (`routes.py`)."""

    @property
    def path(self) -> dict[str, Any]:
        """The parameters of the route's path, by name."""
        return self.request.path_params

    @property
    def query(self) -> dict[str, str]:
        """The query parameters, by name; of one that is given twice, the last."""
        return dict(self.request.query_params)

    def require(self, verb: str, kind: Kind, namespace: str = "", *, name: str = "", subresource: str = "") -> None:
        """Raises Forbidden where the caller may not."""
        require(self.rights, verb, kind, namespace, name=name, subresource=subresource)

    def allows(self, verb: str, kind: Kind, namespace: str = "") -> bool:
        """Whether the caller may, for lists that leave out what he may not see."""
        return self.rights is None or self.rights.allows(verb, kind, namespace)

    def require_right(self, kind: Kind, namespace: str, name: str) -> None:
        """The route's own right, to an object of this kind or to what belongs to it. Raises Forbidden."""
        right = self.right
        own = right.kind in (None, kind)
        self.require(right.verb, right.kind or kind, namespace, name=name if own else "", subresource=right.subresource)

    async def body(self, limit: int = MAX_BODY_BYTES) -> bytes:
        """As it came. Raises TooLarge beyond `limit` bytes."""
        raw = bytearray()
        async for chunk in self.request.stream():
            raw += chunk
            if len(raw) > limit:
                raise TooLarge(f"the body has more than {limit} bytes, which is the limit")
        return bytes(raw)

    async def json(self, limit: int = MAX_BODY_BYTES) -> Any:
        """The body. Raises BadRequest when it is not JSON."""
        raw = await self.body(limit)
        try:
            return msgspec.json.decode(raw)
        except ValueError as error:  # msgspec.DecodeError, or a text that is no UTF-8
            raise BadRequest(f"the body is not JSON: {error}") from None

    def validate_query(self, *allowed: str) -> dict[str, str]:
        """The query, with nothing in it but these. Raises BadRequest."""
        for name in self.query:
            if name.rstrip("?") and name not in allowed:
                raise BadRequest(f"there is no query parameter {name!r}.{did_you_mean(name, allowed)}")
        return self.query


@dataclass(frozen=True, slots=True)
class JsonResult:
    """JSON with a status other than 200."""

    code: int
    body: Any


Endpoint = Callable[[RestCall], Awaitable[Any]]
