"""A cache of the claims of tokens whose signature was verified, since a check takes 0.1 ms and clients send the same token again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MOST = 4_096
"""Most tokens kept; when it is reached the cache is cleared."""


class CheckedTokens(dict[str, Mapping[str, Any]]):
    """Token → its claims. Entries do not expire: the caller must check the times of the claims."""

    def claims_of(self, token: str, check: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The token's claims. For a token not seen before, `check` verifies it and returns them, or raises."""
        claims = self.get(token)
        if claims is None:
            claims = check(token)
            self.remember(token, claims)
        return claims

    def remember(self, token: str, claims: Mapping[str, Any]) -> None:
        if len(self) >= _MOST:
            self.clear()
        self[token] = claims
