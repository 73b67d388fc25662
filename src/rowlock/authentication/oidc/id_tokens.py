"""Resolves ID tokens of an identity provider to users, after checking signature, issuer, audience, times and required claims.

The rules are those of kube-apiserver's `--oidc-…` flags. Checks do no I/O: the keys are read beforehand (`provider.py`). Await `look_up`
first, which fetches keys that are not known yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rowlock.authentication.checked_tokens import CheckedTokens
from rowlock.authentication.oidc.provider import OidcProvider, SigningKey
from rowlock.authentication.service_account_tokens import looks_like_jwt, untrusted_issuer
from rowlock.authentication.users import AUTHENTICATED, User
from rowlock.errors import Unauthorized, Unavailable

SKEW_S = 60.0
"""Seconds by which the provider's clock may differ from ours."""
MAX_TOKEN_BYTES = 16 * 1024
MAX_GROUPS = 500
_RESERVED_NAMES = ("system:", "app:", "unix:", "rowlock-admin", "kubernetes-admin")
"""Reserved prefixes: components, applications, Unix users, the owner."""


class IdTokens:
    """Checks the tokens of one provider. `clock` gives Unix seconds."""

    def __init__(self, provider: OidcProvider, clock: Callable[[], float] = time.time) -> None:
        self._provider, self._settings, self._clock = provider, provider.settings, clock
        self._checked = CheckedTokens()
        self._generation = -1

    def is_ours(self, token: str) -> bool:
        """Whether the token claims this provider as its issuer. The signature is not checked."""
        return (
            looks_like_jwt(token) and len(token) <= MAX_TOKEN_BYTES and untrusted_issuer(token) == self._settings.issuer
        )

    async def look_up(self, token: str) -> None:
        """Fetch the provider's keys if the token's key is unknown; await it before `find_user`. Raises Unavailable if no keys are known."""
        if token in self._checked or not self.is_ours(token):
            return
        if (
            not self._provider.has_keys
        ):  # before the token is parsed: reading the keys imports PyJWT on a thread, not here
            await self._provider.refresh_for_unknown_key()
        if not self._provider.has_keys:
            label, problem = self._settings.label, self._provider.problem
            raise Unavailable(f"tokens of {label} cannot be checked yet ({problem}): try again in a moment")
        try:
            known = self._find_keys(token)
        except Unauthorized:
            return
        if not known:
            await self._provider.refresh_for_unknown_key()

    def find_user(self, token: str) -> User | None:
        """The user of the token; None if it is not valid."""
        try:
            return self.user_of(self.check(token)) if token in self._checked or self.is_ours(token) else None
        except Unauthorized:
            return None

    def check(self, token: str, nonce: str | None = None) -> Mapping[str, Any]:
        """Verify a token and return its claims; `nonce` is that of the login it must belong to. Raises Unauthorized with the reason."""
        if self._generation != self._provider.generation:  # tokens of a withdrawn key must not stay cached
            self._checked.clear()
            self._generation = self._provider.generation
        claims = self._checked.claims_of(token, self._check_signature)
        now = self._clock()
        if now >= claims["exp"] + SKEW_S:
            raise Unauthorized("the token has expired")
        if any(now < _number(claims, name) - SKEW_S for name in ("nbf", "iat")):
            raise Unauthorized(
                "the token is not valid yet: does the clock of this machine, or that of the provider, go wrong?"
            )
        if nonce is not None and claims.get("nonce") != nonce:
            raise Unauthorized("the token was made for another login")
        return claims

    def user_of(self, claims: Mapping[str, Any]) -> User:
        """The user that the claims name. Raises Unauthorized naming the claim that is missing or wrong."""
        settings = self._settings
        name = claims.get(settings.username_claim)
        if not isinstance(name, str) or not name or len(name) > 256 or not name.isprintable():
            raise Unauthorized(f"the token has no claim {settings.username_claim!r} with a name")
        if settings.username_claim == "email" and claims.get("email_verified", True) is not True:
            raise Unauthorized("the e-mail address of the token is not verified")
        for claim, value in settings.required_claims:
            if claims.get(claim) != value:
                raise Unauthorized(f"the token needs the claim {claim}={value}")
        whole = settings.username_prefix + name
        if whole.startswith(_RESERVED_NAMES):
            raise Unauthorized(
                f"{whole[:80]!r} is a name of the cluster's own: give names a prefix with --oidc-username-prefix"
            )
        return User(whole, (*self._groups(claims), AUTHENTICATED), str(claims["sub"]))

    def _groups(self, claims: Mapping[str, Any]) -> list[str]:
        """The groups with their prefix, without those that begin with `system:`, which a provider must not grant."""
        given = claims.get(self._settings.groups_claim, ()) if self._settings.groups_claim else ()
        groups = [given] if isinstance(given, str) else given
        if (
            not isinstance(groups, list | tuple)
            or len(groups) > MAX_GROUPS
            or any(not isinstance(g, str) for g in groups)
        ):
            raise Unauthorized(f"the claim {self._settings.groups_claim!r} is no list of at most {MAX_GROUPS} names")
        named = [self._settings.groups_prefix + group for group in groups if group]
        return [group for group in dict.fromkeys(named) if not group.startswith("system:")]

    # ------------------------------------------------------------ signatures

    def _find_keys(self, token: str) -> list[SigningKey]:
        """The keys that may have signed the token. Raises Unauthorized if its header is malformed or names another algorithm."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            raise Unauthorized(f"the token cannot be read: {error}") from None
        algorithm, identity = header.get("alg"), header.get("kid") or ""
        if algorithm not in self._settings.algorithms:
            raise Unauthorized(
                f"tokens are signed with {', '.join(self._settings.algorithms)}, not {str(algorithm)[:20]!r}"
            )
        if "crit" in header or not isinstance(identity, str):
            raise Unauthorized("the token's header asks for what is not known here")
        found = self._provider.find_keys(identity, str(algorithm))
        return found if identity or len(found) == 1 else []

    def _check_signature(self, token: str) -> Mapping[str, Any]:
        import jwt

        if not self._provider.has_keys:
            raise Unauthorized(f"the keys of {self._settings.label} are not known yet")
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthorized(f"a token has at most {MAX_TOKEN_BYTES} bytes")
        keys = self._find_keys(token)
        if not keys:
            raise Unauthorized(f"the token was signed with a key that {self._settings.label} does not name")
        options: Any = {
            "require": ["exp", "iat", "sub", "aud"],
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
        }
        problem: Exception | None = None
        for key in keys[:4]:
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token,
                    key.key,
                    list(self._settings.algorithms),
                    issuer=self._settings.issuer,
                    audience=self._settings.client_id,
                    options=options,
                )
                return _check_claims(claims, self._settings.client_id)
            except (jwt.PyJWTError, ValueError, RecursionError) as error:
                problem = error
        raise Unauthorized(f"the token is not accepted: {problem}")


def _check_claims(claims: Mapping[str, Any], client_id: str) -> Mapping[str, Any]:
    """Check the types of the times, and `azp` of a token with several audiences. Raises Unauthorized."""
    for name in ("exp", "nbf", "iat"):
        _number(claims, name)
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if several and claims.get("azp") != client_id:
        raise Unauthorized("the token is for several clients, and another one has asked for it (azp)")
    return claims


def _number(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unauthorized(f"the claim {name!r} is no number")
    return float(value)
