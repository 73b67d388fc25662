"""Finds the user of a bearer token by a SelfSubjectReview with that token, for which rowlock itself needs no rights.

    users = ClusterUsers(Connection(Credentials(kubeconfig, anonymous=True)))
    await users.look_up(token)          # asks, unless it is known
    user = users.find(token)            # None: not accepted

A user's requests go out with the user's token (`connection_of`): the API server decides about them, and its audit log names the user.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from rowlock.errors import ApiError, Forbidden, TooManyRequests, Unauthorized, Unavailable
from rowlock.kinds import Kind
from rowlock.kube import requests
from rowlock.kube.connection import Connection, Request
from rowlock.kube.users.application_secret import seconds_left
from rowlock.kube.users.user_connection import UserConnection

SELF_REVIEW = Kind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", (), False)
KNOWN_SECONDS, UNKNOWN_SECONDS = 60.0, 10.0
"""Seconds that an answer is cached, for a valid and for an invalid token, as in kube-apiserver's token webhook; less for a token that
expires earlier."""
_LEAST_SECONDS = 1.0
"""Minimum of seconds that a user is cached, even if the token has expired by our clock: clocks differ."""
EXPIRY_GRACE_S = 1.0
"""Seconds that an answer is still found after its end, so that it cannot expire between `look_up` and `find`."""
REVIEW_S = 10.0
"""Seconds between two checks of the token of an open stream; the cluster is asked once the cached answer has expired."""
MAKE_TOKEN = "`kubectl create token NAME -n NAMESPACE` makes one for a service account"
UNKNOWN_TOKEN = f"the cluster does not accept this token: it is wrong, is over or was taken back; sign in again with a new one ({MAKE_TOKEN})"
MAX_ANSWERS = 4096
MAX_QUESTIONS = 16
"""Maximum of concurrent reviews, so that guessed tokens cannot keep the API server busy."""
_ANONYMOUS = "system:anonymous"


class ClusterUser(NamedTuple):
    """The `userInfo` of a review."""

    name: str
    groups: tuple[str, ...]
    uid: str
    extra: Mapping[str, Sequence[str]]


class _Answer(NamedTuple):
    user: ClusterUser | None
    until: float


class ClusterUsers:
    """The users of one cluster, by their tokens. `connection` has no credentials of its own."""

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection, self._clock, self._wall_clock = connection, clock, wall_clock
        self._answers: dict[bytes, _Answer] = {}
        self._questions: dict[bytes, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Close the connections of all users."""
        await self._connection.close()

    def connection_of(self, token: str) -> UserConnection:
        """A connection to the cluster with this token."""
        return UserConnection(self._connection, token, self)

    def find(self, token: str) -> ClusterUser | None:
        """The user of a token that was looked up; None for an invalid or unknown token."""
        answer = self._answers.get(_digest(token))
        return answer.user if answer is not None and answer.until + EXPIRY_GRACE_S > self._clock() else None

    async def look_up(self, token: str) -> None:
        """Ask the cluster for the user of a token, unless it is cached. Raises ApiError when the cluster does not answer,
        TooManyRequests when too many tokens are being reviewed."""
        digest = _digest(token)
        answer = self._answers.get(digest)
        if answer is not None and answer.until > self._clock():
            return
        question = self._questions.get(digest)
        if question is None:
            if len(self._questions) >= MAX_QUESTIONS:
                raise TooManyRequests("the cluster is being asked about many tokens now: try again in a second")
            question = self._questions[digest] = asyncio.create_task(self._ask(token, digest))
            question.add_done_callback(lambda _: self._questions.pop(digest, None))
        await asyncio.shield(question)  # several requests may await it

    async def explain_refusal(self, token: str, error: Unauthorized) -> ApiError:
        """As `TokenReviews.explain_refusal`. Asks the cluster again at once: the cached answer may be outdated, and a 401 may come from a
        node that cannot authenticate its API server."""
        self._answers.pop(_digest(token), None)
        await self.look_up(token)
        if self.find(token) is None:
            return Unauthorized(UNKNOWN_TOKEN)
        return Unavailable(f"your token counts at the cluster, and yet this was refused there: {error.message}")

    async def wait_until_refused(self, token: str) -> str:
        """As `TokenReviews.wait_until_refused`."""
        while True:
            await asyncio.sleep(REVIEW_S)
            with suppress(ApiError):  # no answer is not a refusal
                await self.look_up(token)
                if self.find(token) is None:
                    return UNKNOWN_TOKEN

    async def _ask(self, token: str, digest: bytes) -> None:
        body = {"apiVersion": SELF_REVIEW.api_version, "kind": SELF_REVIEW.name}
        request = Request("POST", requests.path(SELF_REVIEW), body=body, token=token)
        try:
            user = _read_user(await self._connection.send(request))
        except Unauthorized:
            user = None
        except Forbidden as error:  # every cluster allows it to authenticated users (system:basic-user)
            raise Forbidden(f"the cluster does not say whose this token is: {error.message}") from error
        if len(self._answers) >= MAX_ANSWERS:
            self._answers.clear()
        cached = UNKNOWN_SECONDS
        if user is not None:
            cached = min(KNOWN_SECONDS, max(seconds_left(token, self._wall_clock()), _LEAST_SECONDS))
        self._answers[digest] = _Answer(user, self._clock() + cached)


def _digest(token: str) -> bytes:
    """The key under which a token is cached, so that the token itself is not stored."""
    return sha256(token.encode()).digest()


def _read_user(review: Any) -> ClusterUser | None:
    info = (review.get("status") or {}).get("userInfo") or {}
    name = str(info.get("username") or "")
    if not name or name == _ANONYMOUS:
        return None
    return ClusterUser(name, tuple(info.get("groups") or ()), str(info.get("uid") or ""), info.get("extra") or {})
