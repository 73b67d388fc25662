"""Tokens of service accounts: JWTs (ES256) signed with a key of the data directory, as TokenRequest returns them.

A token is valid for its audiences until it expires, and only while its account, and the object that it is bound to, exist with the same
uid. PyJWT is imported for the first token, because loading it (mostly OpenSSL) takes 0.1 s.
"""

from __future__ import annotations

import time
import uuid
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rowlock import kinds, objects
from rowlock.api import View
from rowlock.authentication.checked_tokens import CheckedTokens
from rowlock.authentication.users import AUTHENTICATED, User, service_account_groups
from rowlock.errors import Unauthorized
from rowlock.objects import Object

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ISSUER = "https://kubernetes.default.svc"
KEY_FILE = "service-account.key"
MIN_SECONDS, DEFAULT_SECONDS, MAX_SECONDS = 600, 3600, 2**32
_ALGORITHM = "ES256"
_BOUND_KINDS = {"pod": kinds.POD, "secret": kinds.SECRET}
_EXTRA = "authentication.kubernetes.io/"


class IssuedToken(NamedTuple):
    """A token, and when it expires (Unix seconds)."""

    token: str
    expires: int


class ServiceAccountTokens:
    """Issues service account tokens and resolves them to users."""

    def __init__(self, key_file: Path, view: View, *, clock: Callable[[], float] = time.time) -> None:
        self._key_file, self._view, self._clock = key_file, view, clock
        self._private_key: EllipticCurvePrivateKey | None = None
        self._checked = CheckedTokens()
        """The claims of tokens whose signature was verified."""

    def load(self) -> EllipticCurvePrivateKey:
        """The signing key. The first call reads it and imports PyJWT and cryptography. Raises OSError, ValueError."""
        if self._private_key is None:
            import jwt  # noqa: F401  so that the first token need not wait for it
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.hazmat.primitives.serialization import load_pem_private_key

            key = load_pem_private_key(self._key_file.read_bytes(), None)
            if not isinstance(key, ec.EllipticCurvePrivateKey):
                raise ValueError(
                    f"{self._key_file} does not hold an EC key: remove it, a new one is made at the next start"
                )
            self._private_key = key
        return self._private_key

    def issue(
        self,
        account: Object,
        *,
        audiences: Sequence[str] = (),
        seconds: int = DEFAULT_SECONDS,
        bound: Object | None = None,
    ) -> IssuedToken:
        """A token for an account. `audiences` () means this API server; `bound` is the Pod or Secret whose deletion revokes it."""
        import jwt

        now = int(self._clock())
        private: dict[str, Any] = {"namespace": objects.namespace(account), "serviceaccount": _reference(account)}
        if bound is not None:
            private[str(bound["kind"]).lower()] = _reference(bound)
            if node := objects.dig(bound, "spec.nodeName"):
                found = self._view.get(kinds.NODE, "", node)
                private["node"] = {"name": node, **({"uid": objects.uid(found)} if found else {})}
        claims = {
            "aud": list(audiences) or [ISSUER], "exp": now + seconds, "iat": now, "iss": ISSUER, "jti": str(uuid.uuid4()),
            "kubernetes.io": private, "nbf": now,
            "sub": f"system:serviceaccount:{objects.namespace(account)}:{objects.name(account)}",
        }  # fmt: skip
        return IssuedToken(jwt.encode(claims, self.load(), _ALGORITHM), now + seconds)

    def authenticate(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> User:
        """The user of a token. Raises Unauthorized with the reason."""
        claims = self._checked.claims_of(token, self._check_signature)
        now = self._clock()
        if not claims["nbf"] - 60 <= now < claims["exp"]:
            raise Unauthorized(
                "service account token has expired" if now >= claims["exp"] else "token is not valid yet"
            )
        if not set(audiences) & set(claims["aud"]):
            shown = [str(list(texts)).replace("'", '"').replace(", ", " ") for texts in (claims["aud"], audiences)]
            raise Unauthorized(f"token audiences {shown[0]} is invalid for the target audiences {shown[1]}")
        return self._user(claims)

    def find_user(self, token: str) -> User | None:
        """The user of a token for this API server; None if the token is not valid."""
        if untrusted_issuer(token) != ISSUER:
            return None
        try:
            return self.authenticate(token)
        except Unauthorized:
            return None

    def audiences_of(self, token: str) -> Sequence[str]:
        """The audiences of a token that was authenticated before; () if unknown."""
        claims = self._checked.get(token)
        return claims["aud"] if claims else ()

    def _check_signature(self, token: str) -> Mapping[str, Any]:
        import jwt

        try:
            required = {
                "require": ["aud", "exp", "nbf", "sub", "kubernetes.io"],
                "verify_aud": False,
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            }
            claims: Mapping[str, Any] = jwt.decode(
                token,
                self.load().public_key(),
                [_ALGORITHM],
                issuer=ISSUER,
                options=required,  # type: ignore[arg-type]
            )
        except jwt.PyJWTError as error:
            raise Unauthorized(f"invalid bearer token: {error}") from None
        return claims

    def _user(self, claims: Mapping[str, Any]) -> User:
        private = claims["kubernetes.io"]
        namespace, reference = private["namespace"], private["serviceaccount"]
        account = self._view.get(kinds.SERVICE_ACCOUNT, namespace, reference["name"])
        if account is None or objects.uid(account) != reference["uid"]:
            raise Unauthorized("service account UID has changed or it has been deleted")
        extra = {f"{_EXTRA}credential-id": (f"JTI={claims['jti']}",)}
        for word, kind in _BOUND_KINDS.items():
            if (bound := private.get(word)) is None:
                continue
            obj = self._view.get(kind, namespace, bound["name"])
            if obj is None or objects.uid(obj) != bound["uid"]:
                raise Unauthorized(f"service account token is bound to a {word} that is not there any more")
            if kind is kinds.POD:
                extra |= {f"{_EXTRA}pod-name": (bound["name"],), f"{_EXTRA}pod-uid": (bound["uid"],)}
        for field, text in private.get("node", {}).items():
            extra[f"{_EXTRA}node-{field}"] = (text,)
        name = str(claims["sub"])
        return User(name, (*service_account_groups(name), AUTHENTICATED), reference["uid"], extra)


def _reference(obj: Object) -> dict[str, str]:
    return {"name": objects.name(obj), "uid": objects.uid(obj)}


def looks_like_jwt(token: str) -> bool:
    """Whether the token has three parts, the first beginning like a JSON object in base64. The owner's and static tokens do not."""
    return token.startswith("eyJ") and token.count(".") == 2


def untrusted_issuer(token: str) -> str:
    """The issuer that an unverified token claims, or "". It only selects which key verifies the signature, so that each token is
    verified once (0.1 ms)."""
    if not looks_like_jwt(token):
        return ""
    payload = token.split(".")[1]
    try:
        return msgspec.json.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Issued).iss
    except ValueError:
        return ""


class _Issued(msgspec.Struct):
    iss: str = ""
