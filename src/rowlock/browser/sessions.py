"""Web UI sessions: one-time codes, the sessions they are exchanged for, and the token that each session acts with.

A code goes from the command line to the browser in the fragment of a URL, which no server and no log sees. It is exchanged
once for the two halves of a session: a cookie that scripts cannot read, and a key that the page keeps in its origin's storage
and sends as a header. Both are needed, because browsers send cookies to every port of a host: a pod that serves a page on
another port of this machine receives our cookie, but never the key.
The owner's session is signed and not stored, so it survives a restart of the server; other users' sessions do not.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rowlock.errors import Unauthorized

CODE_LIFETIME_S = 120.0
"""Seconds for which a code is valid."""
CODE_ATTEMPTS = 5
"""Wrong secrets after which a code is revoked."""
CODES_PER_TOKEN = 8
"""Most open codes of one token; beyond it the oldest is dropped."""
SESSION_LIFETIME_S = 12 * 3600
"""Seconds after which a session ends and its user needs a new code."""
SESSIONS_PER_TOKEN = 32
"""Most sessions of one token; beyond it the token's oldest is ended."""
_MAX_SESSIONS = 1_000
"""Most sessions of all users but the owner; beyond it the oldest is ended."""
_OWNER, _USER = "owner", "user"


class BrowserSession(NamedTuple):
    """The two halves of a new session, and its lifetime in seconds."""

    cookie: str
    key: str
    seconds: int


@dataclass(slots=True)
class BrowserLogin:
    """The token that a session acts with and, after a login at an identity provider, what is needed to renew it."""

    token: str
    expires: float = float("inf")
    """When a provider's token expires (Unix seconds); infinite for other tokens."""
    refresh_token: str = ""
    renewal: asyncio.Task[None] | None = None
    renew_after: float = 0.0


@dataclass(slots=True)
class _Code:
    secret: str
    login: BrowserLogin
    expires: float
    attempts: int = 0


class Sessions:
    """Codes and sessions of one server. `clock` gives Unix seconds."""

    def __init__(self, owner_token: str, clock: Callable[[], float]) -> None:
        self._owner_token, self._clock = owner_token, clock
        self._signing_key = hmac.digest(owner_token.encode(), b"sessions of the web UI", "sha256")
        self._codes: dict[str, _Code] = {}
        self._logins: dict[str, BrowserLogin] = {}
        """Nonce of a user's session → its login."""
        self._ended: dict[str, float] = {}
        """Nonce of an owner's session that was ended → when it would have expired."""

    # ------------------------------------------------------------ codes

    def issue_code(self, token: str, *, expires: float = float("inf"), refresh_token: str = "") -> str:
        """A code for the holder of this token, which the caller has verified."""
        login, now = BrowserLogin(token, expires, refresh_token), self._clock()
        self._codes = {name: code for name, code in self._codes.items() if code.expires > now}
        own = [name for name, code in self._codes.items() if code.login.token == token]
        for name in own[: max(0, len(own) - CODES_PER_TOKEN + 1)]:
            del self._codes[name]
        name, secret = secrets.token_urlsafe(6), secrets.token_urlsafe(24)
        self._codes[name] = _Code(secret, login, now + CODE_LIFETIME_S)
        return f"{name}.{secret}"

    def exchange(self, text: str) -> BrowserSession:
        """Use up a code and begin a session. Attempts are counted per code, so that guessing does not lock out other users.
        Raises Unauthorized."""
        name, _, secret = text.partition(".")
        code = self._codes.get(name)
        if code is None or code.expires <= self._clock():
            raise Unauthorized(
                "this code is not known: each works once, for two minutes. `rowlock ui` prints a new address"
            )
        if not hmac.compare_digest(secret.encode(), code.secret.encode()):
            code.attempts += 1
            if code.attempts >= CODE_ATTEMPTS:
                del self._codes[name]
            raise Unauthorized("this code is wrong: `rowlock ui` prints a new address")
        del self._codes[name]
        return self.begin(code.login)

    # ------------------------------------------------------------ sessions

    def begin(self, login: BrowserLogin) -> BrowserSession:
        """Begin a session for a user who has logged in."""
        is_owner = hmac.compare_digest(login.token.encode(), self._owner_token.encode())
        nonce = secrets.token_urlsafe(18)
        if not is_owner:
            own = [name for name, other in self._logins.items() if other.token == login.token]
            for name in own[: max(0, len(own) - SESSIONS_PER_TOKEN + 1)]:
                del self._logins[name]
            while len(self._logins) >= _MAX_SESSIONS:
                del self._logins[next(iter(self._logins))]
            self._logins[nonce] = login
        expires = int(self._clock()) + SESSION_LIFETIME_S
        claim = f"{_OWNER if is_owner else _USER}.{expires}.{nonce}"
        cookie = f"{claim}.{self._sign('cookie', claim)}"
        return BrowserSession(cookie, self._sign("key", claim), SESSION_LIFETIME_S)

    def token_of(self, cookie: str, key: str) -> str:
        """The token of the session. Raises Unauthorized, which says what to do."""
        return self.login_of(cookie, key)[1].token

    def login_of(self, cookie: str, key: str) -> tuple[str, BrowserLogin]:
        """The session's name and its login, whose token is replaced at renewals. Raises Unauthorized, which says what to do."""
        claim, _, signature = cookie.rpartition(".")
        fits = hmac.compare_digest(signature.encode(), self._sign("cookie", claim).encode())
        fits &= hmac.compare_digest(key.encode(), self._sign("key", claim).encode())
        if not fits:
            raise Unauthorized("there is no session here: `rowlock ui` prints an address that begins one")
        kind, expires, nonce = claim.split(".")
        login = BrowserLogin(self._owner_token) if kind == _OWNER else self._logins.get(nonce)
        if int(expires) <= self._clock() or nonce in self._ended or login is None:
            raise Unauthorized(
                "this session is over: sign in again, or let `rowlock ui` print an address that begins a new one"
            )
        return nonce, login

    def is_of_provider(self, cookie: str) -> bool:
        """Whether the session began with a login at the identity provider; False for an invalid cookie."""
        login = self._logins.get(cookie.split(".")[2]) if cookie.count(".") == 3 else None
        return login is not None and login.expires != float("inf")

    def end(self, cookie: str, key: str) -> str:
        """End a session early; returns its name. Raises Unauthorized if there is no such session."""
        self.token_of(cookie, key)
        kind, expires, nonce, _ = cookie.split(".")
        now = self._clock()
        self._ended = {ended: until for ended, until in self._ended.items() if until > now}
        if kind == _OWNER:  # a user's session ends with its entry in _logins
            self._ended[nonce] = float(expires)
        self._logins.pop(nonce, None)
        return nonce

    def _sign(self, purpose: str, claim: str) -> str:
        return hmac.new(self._signing_key, f"{purpose}.{claim}".encode(), hashlib.sha256).hexdigest()
