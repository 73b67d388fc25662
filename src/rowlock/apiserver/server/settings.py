"""What the API server is told at its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rowlock.apiserver.http import requests
from rowlock.apiserver.http.users import User


@dataclass(frozen=True, slots=True)
class ApiServerSettings:
    """Who may come in: the owner's token, and others by value; what the server calls itself."""

    token: str = ""
    tokens: Mapping[str, User] = field(default_factory=dict)
    owner_loopback_only: bool = False
    """The owner's token counts on loopback alone: who comes from elsewhere has one of his own."""
    address: str = "127.0.0.1"
    body_limit: int = requests.BODY_LIMIT
    watch_limit: int = 5_000
    """Watches, followed logs and sessions in pods that one user may have at once."""
    is_ready: Callable[[], bool] = lambda: True
