"""Access tokens. An application gets one for its client id and secret, valid for an hour or until the application is deleted; a person
gets one for a password, valid for twelve hours or until the account or its password changes.

They are JWTs signed with the key of the service account tokens, but issuer and audience differ, so neither passes for the other.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from rowlock import kinds, objects
from rowlock.accounts.local_login import GROUP_PREFIX, USER_PREFIX, LocalUser
from rowlock.accounts.user_accounts import UserAccount, UserAccounts
from rowlock.api import View
from rowlock.authentication.checked_tokens import CheckedTokens
from rowlock.authentication.service_account_tokens import IssuedToken, ServiceAccountTokens, untrusted_issuer
from rowlock.authentication.users import AUTHENTICATED, User
from rowlock.workloads.accounts import applications

ISSUER = AUDIENCE = "rowlock"
LIFETIME_S = 3600
"""Seconds; a program can log in again by itself."""
USER_LIFETIME_S = 12 * 3600
"""Seconds; longer, since a person must type the password again."""
LOCAL_GROUP = "rowlock:local-users"
"""The group of all users who log in with their Unix account."""
USER_GROUP = "rowlock:users"
"""The group of all users with a password account."""


class AccessTokens:
    """Issues access tokens and resolves tokens to users."""

    def __init__(
        self,
        accounts: ServiceAccountTokens,
        view: View,
        users: UserAccounts | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._accounts, self._view, self._users, self._clock = accounts, view, users, clock
        self._checked = CheckedTokens()

    def issue(self, client_id: str, client_secret: str) -> IssuedToken | None:
        """A token for an application; None if the secret is wrong or there is no such application."""
        secret = self._view.get(kinds.SECRET, applications.NAMESPACE, applications.secret_name(client_id))
        if not applications.has_secret(secret, client_secret) or secret is None:
            return None
        name = applications.application_name(secret)
        return self._sign(LIFETIME_S, sub=applications.USER_PREFIX + name, azp=name, sid=objects.uid(secret))

    def issue_for_user(self, account: UserAccount) -> IssuedToken:
        """A token for a person whose password the caller has verified."""
        return self._sign(USER_LIFETIME_S, sub=account.name, azp="", sid=account.id, gen=account.generation)

    def issue_for_local_user(self, user: LocalUser) -> IssuedToken:
        """A token for a Unix user whom the kernel has identified, with the user's current groups."""
        groups = [GROUP_PREFIX + name for name in user.groups]
        return self._sign(LIFETIME_S, sub=USER_PREFIX + user.name, azp="", sid=str(user.uid), unix=groups)

    def _sign(self, lifetime: int, **content: Any) -> IssuedToken:
        import jwt

        now = int(self._clock())
        times = {"iat": now, "nbf": now, "exp": now + lifetime}
        claims = {"iss": ISSUER, "aud": AUDIENCE, **times, "jti": str(uuid.uuid4()), **content}
        return IssuedToken(jwt.encode(claims, self._accounts.load(), "ES256"), now + lifetime)

    def find_user(self, token: str) -> User | None:
        """The user of a token; None if the token is not valid, or no longer. Accepts service account tokens too."""
        claims = self._checked.get(token)
        if claims is None:
            if untrusted_issuer(token) != ISSUER:
                return self._accounts.find_user(token)
            if (claims := self._check_signature(token)) is None:
                return None
            self._checked.remember(token, claims)
        if not claims["nbf"] - 60 <= self._clock() < claims["exp"]:
            return None
        if "unix" in claims:
            return User(claims["sub"], (*claims["unix"], LOCAL_GROUP, AUTHENTICATED), claims["sid"])
        if "gen" in claims:
            return self._find_person(claims)
        name = str(claims["azp"])
        secret = self._view.get(kinds.SECRET, applications.NAMESPACE, applications.secret_name(name))
        if secret is None or objects.uid(secret) != claims["sid"]:
            return None
        return User(applications.USER_PREFIX + name, (applications.GROUP, AUTHENTICATED), objects.uid(secret))

    def _find_person(self, claims: Mapping[str, Any]) -> User | None:
        account = self._users.get(str(claims["sub"])) if self._users else None
        if account is None or (account.id, account.generation) != (claims["sid"], claims["gen"]):
            return None
        return User(account.name, (USER_GROUP, AUTHENTICATED), account.id)

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
