"""What the API server is told at its start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rowlock.apiserver.http import requests
from rowlock.apiserver.http.requests import Target
from rowlock.apiserver.server.auditing import Audit
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
    """Who may come in: the owner's token, and others by value; what the server calls itself."""

    token: str = ""
    tokens: Mapping[str, User] = field(default_factory=dict)
    owner_loopback_only: bool = False
    """The owner's token is accepted on loopback only; other users have tokens of their own."""
    address: str = "127.0.0.1"
    body_limit: int = requests.BODY_LIMIT
    watch_limit: int = 5_000
    """Watches, followed logs and sessions in pods that one user may have at once."""
    service_accounts: ServiceAccountTokens | None = None
    """Who makes and knows the tokens of service accounts; None where there are none."""
    access_tokens: AccessTokens | None = None
    """Who logs applications in; it knows the tokens of service accounts, too."""
    id_tokens: IdTokens | None = None
    """Knows the tokens of an identity provider; None where none is configured."""
    is_ready: Callable[[], bool] = lambda: True
    observer: RequestObserver | None = None
    audit: Audit | None = None
    render_metrics: RenderMetrics | None = None
    """Who answers `/metrics`; nobody does where it is None."""

    @property
    def find_token_user(self) -> Callable[[str], User | None] | None:
        """Whose a signed token is; None where there are none."""
        tokens, id_tokens = self.access_tokens or self.service_accounts, self.id_tokens
        find_own = tokens.find_user if tokens else None
        if id_tokens is None or find_own is None:
            return find_own if id_tokens is None else id_tokens.find_user
        find_provided, find_first = id_tokens.find_user, find_own
        return lambda token: find_first(token) or find_provided(token)
