"""Answers TokenReviews: the user of a token, a service account or a person, and its audiences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rowlock.authentication.service_account_tokens import ISSUER, ServiceAccountTokens, looks_like_jwt, untrusted_issuer
from rowlock.authentication.users import TokenAuthenticator, User
from rowlock.errors import Unauthorized


class ReviewedToken(NamedTuple):
    """A token's user and those of the requested audiences that it is valid for; or the error."""

    user: User | None
    audiences: Sequence[str] = ()
    error: str = ""


ReviewToken = Callable[[str, Sequence[str]], ReviewedToken]
"""Takes a token and audiences; () means this API server."""


def token_reviewer(accounts: ServiceAccountTokens | None, authenticator: TokenAuthenticator) -> ReviewToken:
    """A reviewer of service account tokens (if `accounts` is not None) and of all tokens that the authenticator knows."""

    def review_token(token: str, audiences: Sequence[str]) -> ReviewedToken:
        if accounts is None or not looks_like_jwt(token) or untrusted_issuer(token) not in ("", ISSUER):
            user = authenticator.authenticate(token)
            return ReviewedToken(user, (), "" if user else "invalid bearer token")
        wanted = audiences or (ISSUER,)
        try:
            user = accounts.authenticate(token, wanted)
        except Unauthorized as error:
            return ReviewedToken(None, (), f"[invalid bearer token, {error.message}]")
        return ReviewedToken(user, [one for one in wanted if one in accounts.audiences_of(token)])

    return review_token
