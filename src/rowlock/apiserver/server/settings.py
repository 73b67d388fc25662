"""The settings of the API server, and what it tells the audit log: verb and resource of a request, never the body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from starlette.types import Scope

from rowlock import kinds
from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Call, Target
from rowlock.audit.audit_log import AuditLog
from rowlock.authentication.access_tokens import AccessTokens
from rowlock.authentication.oidc.id_tokens import IdTokens
from rowlock.authentication.service_account_tokens import ServiceAccountTokens
from rowlock.authentication.users import User

RenderMetrics = Callable[[str], Awaitable[tuple[bytes, str]]]
"""From an Accept header to the text of `/metrics` and its media type."""


class RequestObserver(Protocol):
    """Counts requests; called once for each, so it must be quick."""

    def count_request(self, verb: str, target: Target | None, code: int, seconds: float) -> None: ...

    def count_long_running(self, verb: str, target: Target, change: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ApiServerSettings:
    """Settings of the API server. `token`: the owner's; `tokens`: static tokens of other users; `address`: for discovery."""

    token: str = ""
    tokens: Mapping[str, User] = field(default_factory=dict)
    owner_loopback_only: bool = False
    """The owner's token is accepted on loopback only."""
    address: str = "127.0.0.1"
    body_limit: int = requests.BODY_LIMIT
    watch_limit: int = 5_000
    """Watches, followed logs and sessions in pods that one user may have at once."""
    service_accounts: ServiceAccountTokens | None = None
    """Issues and verifies tokens of service accounts; None if there are none."""
    access_tokens: AccessTokens | None = None
    """Issues and verifies access tokens; it also verifies tokens of service accounts."""
    id_tokens: IdTokens | None = None
    """Verifies tokens of an identity provider; None if none is configured."""
    is_ready: Callable[[], bool] = lambda: True
    observer: RequestObserver | None = None
    audit: Audit | None = None
    render_metrics: RenderMetrics | None = None
    """Renders `/metrics`; None = the path does not exist."""

    @property
    def find_token_user(self) -> Callable[[str], User | None] | None:
        """A function that returns the user of a signed token; None if no such tokens are configured."""
        tokens, id_tokens = self.access_tokens or self.service_accounts, self.id_tokens
        find_own = tokens.find_user if tokens else None
        if id_tokens is None or find_own is None:
            return find_own if id_tokens is None else id_tokens.find_user
        find_provided, find_first = id_tokens.find_user, find_own
        return lambda token: find_first(token) or find_provided(token)


Audit = Callable[[Scope, Call | None, int], None]
"""Called after each request: the ASGI scope, the request (None if not authenticated), the answer's status code or 0."""
_STREAMS = frozenset({"exec", "attach", "portforward"})


def audit_into(audit_log: AuditLog) -> Audit:
    """A callback that records requests in this log."""

    def audit(scope: Scope, call: Call | None, code: int) -> None:
        address = (scope.get("client") or ("",))[0]
        user, impersonator = (call.user.name, call.impersonator) if call else ("", "")
        about, is_stream = dict[str, Any](), False
        if call is not None and (target := call.target) is not None:
            is_stream = target.subresource in _STREAMS
            about = {
                "sensitive": is_stream or target.kind is kinds.SECRET, "verb": call.verb, "group": target.kind.group,
                "resource": target.resource, "namespace": target.namespace, "name": target.name,
            }  # fmt: skip
        code = code or (101 if is_stream else 499)
        audit_log.record(
            "kubernetes", user, address, scope["method"], scope["path"], code=code, impersonator=impersonator, **about
        )

    return audit
