"""Access tokens: what an application gets for its client id and secret, good for an hour, or until the application is deleted.

JWTs as service accounts have them, by the same key, from another issuer for another audience: neither is taken for the other.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from rowlock import kinds, objects
from rowlock.api import View
from rowlock.apiserver.http.service_account_tokens import IssuedToken, ServiceAccountTokens, untrusted_issuer
from rowlock.apiserver.http.users import AUTHENTICATED, User
from rowlock.workloads.accounts import applications

ISSUER = AUDIENCE = "rowlock"
LIFETIME_S = 3600
_REMEMBERED_TOKENS = 4_096


class AccessTokens:
    """Makes them, and says whose they are."""

    def __init__(self, accounts: ServiceAccountTokens, view: View, *, clock: Callable[[], float] = time.time) -> None:
        self._accounts, self._view, self._clock = accounts, view, clock
        self._checked: dict[str, Mapping[str, Any]] = {}

    def issue(self, client_id: str, client_secret: str) -> IssuedToken | None:
        """For an application; None for a wrong secret as for an application that is not there."""
        secret = self._view.get(kinds.SECRET, applications.NAMESPACE, applications.secret_name(client_id))
        if not applications.has_secret(secret, client_secret) or secret is None:
            return None
        now = int(self._clock())
        name = applications.application_name(secret)
        claims = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": applications.USER_PREFIX + name, "azp": name, "iat": now, "nbf": now,
            "exp": now + LIFETIME_S, "jti": str(uuid.uuid4()), "sid": objects.uid(secret),
        }  # fmt: skip
        import jwt

        return IssuedToken(jwt.encode(claims, self._accounts.load(), "ES256"), now + LIFETIME_S)

    def find_user(self, token: str) -> User | None:
        """Whose it is; None where it is nobody's any more. Tokens of service accounts are looked up besides."""
        claims = self._checked.get(token)
        if claims is None:
            if untrusted_issuer(token) != ISSUER:
                return self._accounts.find_user(token)
            if (claims := self._check_signature(token)) is None:
                return None
            if len(self._checked) >= _REMEMBERED_TOKENS:
                self._checked.clear()
            self._checked[token] = claims
        if not claims["nbf"] - 60 <= self._clock() < claims["exp"]:
            return None
        name = str(claims["azp"])
        secret = self._view.get(kinds.SECRET, applications.NAMESPACE, applications.secret_name(name))
        if secret is None or objects.uid(secret) != claims["sid"]:
            return None
        return User(applications.USER_PREFIX + name, (applications.GROUP, AUTHENTICATED), objects.uid(secret))

    def _check_signature(self, token: str) -> Mapping[str, Any] | None:
        import jwt

        options = {
            "require": ["aud", "exp", "nbf", "azp", "sid"],
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
        }
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                self._accounts.load().public_key(),
                ["ES256"],
                issuer=ISSUER,
                audience=AUDIENCE,
                options=options,  # type: ignore[arg-type]
            )
        except jwt.PyJWTError:
            return None
        return claims
