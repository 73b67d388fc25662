"""The claims of tokens whose signature was checked: a check takes a tenth of a millisecond, and clients come again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_MOST = 4_096
"""Tokens that are remembered; with more, all are checked anew."""


class CheckedTokens(dict[str, Mapping[str, Any]]):
    """Token → its claims. Whether these hold now is the caller's question: nothing is forgotten with time."""

    def claims_of(self, token: str, check: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Any]:
        """The claims; `check` gives those of a token that comes for the first time, or raises."""
        claims = self.get(token)
        if claims is None:
            claims = check(token)
            self.remember(token, claims)
        return claims

    def remember(self, token: str, claims: Mapping[str, Any]) -> None:
        if len(self) >= _MOST:
            self.clear()
        self[token] = claims
