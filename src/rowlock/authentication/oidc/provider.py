"""The identity provider's endpoints and signing keys: read in the background, and kept while the provider is unreachable."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rowlock.authentication.oidc.provider_requests import ProviderRequests
from rowlock.authentication.oidc.settings import OidcSettings, check_address
from rowlock.errors import ApiError, BadRequest, Unavailable

REFRESH_S = 600.0
"""Seconds between reads of the keys: a withdrawn key stays valid at most this long while the provider answers."""
RETRY_S = 10.0
"""Least seconds between two reads: after a failure, and for tokens whose key is not known."""
MAX_KEYS = 64
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192
_CURVES = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
log = logging.getLogger(__name__)


class SigningKey(NamedTuple):
    """One public key, its family, and its algorithm ("" if the key does not name one)."""

    identity: str
    family: str
    """`RSA`, or the curve's name."""
    algorithm: str
    key: Any


class OidcProvider:
    """One provider. `run` keeps its documents fresh; `problem` says why they are not."""

    def __init__(
        self,
        settings: OidcSettings,
        requests: ProviderRequests | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings, self._clock = settings, clock
        self.requests = requests or ProviderRequests(settings)
        self._document: dict[str, Any] = {}
        self._keys: dict[str, list[SigningKey]] = {}
        self._tried_at = float("-inf")
        self._refresh: asyncio.Task[None] | None = None
        self.problem = "it has not answered yet"
        """Why the last read failed; "" if it succeeded."""
        self.generation = 0
        """Incremented at each change of the keys."""

    async def run(self) -> None:
        """Refresh the documents regularly, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(RETRY_S if self.problem else REFRESH_S)

    @property
    def has_keys(self) -> bool:
        return bool(self._keys)

    def find_keys(self, identity: str, algorithm: str) -> list[SigningKey]:
        """The keys with this `kid` ("": all keys) that fit the algorithm."""
        named = self._keys.get(identity, ()) if identity else [key for keys in self._keys.values() for key in keys]
        family = _CURVES.get(algorithm, "RSA")
        return [key for key in named if key.family == family and key.algorithm in ("", algorithm)]

    async def refresh(self) -> None:
        """Read the documents now; concurrent calls share one read. Raises nothing: failures go to `problem`."""
        if self._refresh is None or self._refresh.done():
            self._tried_at = self._clock()
            self._refresh = asyncio.create_task(self._read())
        await asyncio.shield(self._refresh)

    async def refresh_for_unknown_key(self) -> None:
        """Refresh because a token names an unknown key. At most every `RETRY_S` seconds, since the token may be forged."""
        is_running = self._refresh is not None and not self._refresh.done()
        if is_running or self._clock() - self._tried_at >= RETRY_S:
            await self.refresh()

    async def address(self, name: str) -> str:
        """An endpoint of the provider's document. Raises Unavailable if it cannot be read, BadRequest if it has no such endpoint."""
        if not self._document:
            await self.refresh_for_unknown_key()
        if not self._document:
            raise Unavailable(f"{self.settings.label} cannot be reached ({self.problem}): try again in a moment")
        found = self._document.get(name)
        if not isinstance(found, str) or not found:
            raise BadRequest(f"{self.settings.label} has no {name}: this way of logging in is not offered there")
        check_address(found, f"{name} of {self.settings.label}")
        return found

    def known_address(self, name: str) -> str:
        """An endpoint of the provider's document, without reading it; "" if it is unknown."""
        found = self._document.get(name)
        try:
            check_address(found if isinstance(found, str) else "", name)
        except BadRequest:
            return ""
        return str(found)

    def scopes(self, *, offline: bool = False) -> str:
        """The scopes that a login requests: `openid`, and those of the usual scopes that the provider supports."""
        known = self._document.get("scopes_supported")
        usual = ["profile", "email", "groups", *(["offline_access"] if offline else [])]
        return " ".join(["openid", *(scope for scope in usual if isinstance(known, list) and scope in known)])

    # ------------------------------------------------------------ reading

    async def _read(self) -> None:
        try:
            document = await self.requests.get(self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
            if document.get("issuer") != self.settings.issuer:
                said = str(document.get("issuer"))[:200]
                raise BadRequest(f"it calls itself {said!r}: that must be --oidc-issuer-url, letter by letter")
            where = document.get("jwks_uri")
            check_address(where if isinstance(where, str) else "", "its jwks_uri")
            keys = await asyncio.to_thread(parse_keys, await self.requests.get(str(where)))
        except ApiError as error:
            if error.message != self.problem:
                log.warning("the identity provider %s: %s", self.settings.label, error.message)
            self.problem = error.message
            return
        if self.problem:
            log.info("the identity provider %s answers", self.settings.label)
        if {name: [key[:3] for key in group] for name, group in keys.items()} != {
            name: [key[:3] for key in group] for name, group in self._keys.items()
        } or not _same_numbers(keys, self._keys):
            self.generation += 1
        self._document, self._keys, self.problem = document, keys, ""


def _same_numbers(some: dict[str, list[SigningKey]], others: dict[str, list[SigningKey]]) -> bool:
    return [key.key.public_numbers() for group in some.values() for key in group] == [
        key.key.public_numbers() for group in others.values() for key in group
    ]


def parse_keys(document: dict[str, Any]) -> dict[str, list[SigningKey]]:
    """`kid` → keys of a JWK set; only RSA and EC signing keys, others are skipped. Raises BadRequest if none is left."""
    import jwt

    entries = document.get("keys")
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise BadRequest(f"its keys are no list of at most {MAX_KEYS}")
    keys: dict[str, list[SigningKey]] = {}
    for entry in entries:
        if (
            not isinstance(entry, dict)
            or entry.get("use") not in (None, "sig")
            or entry.get("kty") not in ("RSA", "EC")
        ):
            continue
        try:
            key = _parse_key(jwt, entry)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError):
            continue
        if key is not None:
            keys.setdefault(key.identity, []).append(key)
    if not keys:
        raise BadRequest("it has no key that signs with RSA or an elliptic curve")
    return keys


def _parse_key(jwt: Any, entry: dict[str, Any]) -> SigningKey | None:
    public = {name: value for name, value in entry.items() if name in ("kty", "n", "e", "crv", "x", "y")}
    if any(not isinstance(value, str) or len(value) > 2048 for value in public.values()):
        return None
    kind = jwt.algorithms.RSAAlgorithm if entry["kty"] == "RSA" else jwt.algorithms.ECAlgorithm
    key = kind.from_jwk(public)
    if entry["kty"] == "RSA":
        numbers = key.public_numbers()
        if not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS or numbers.e.bit_length() > 32:
            return None
    family = "RSA" if entry["kty"] == "RSA" else str(key.curve.name)
    return SigningKey(str(entry.get("kid") or ""), family, str(entry.get("alg") or ""), key)
