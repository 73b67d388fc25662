"""Requests that go on for long: watches, followed logs, sessions in pods. They are limited per user, and end with the user's access.

kube-apiserver checks a token and a right when a request begins, and lets a watch run on for an hour and `kubectl exec` without an end.
Here a deleted user's watch would then show what the next owner of a project's name keeps in it. So all open requests are reviewed
every few seconds, as those of the web UI's sessions are (`browser/open_requests.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rowlock.authentication.users import User
from rowlock.authorization.authorizer import Attributes, Authorizer, require
from rowlock.errors import ApiError, TooManyRequests, Unauthorized

log = logging.getLogger(__name__)
REVIEW_S = 5.0
"""Seconds between two reviews of the open requests."""


class AdmittedRequest(Protocol):
    """A request that was let in: by whom it was sent, and for which right."""

    path: str
    user: User
    authorizer: Authorizer
    required: Attributes | None
    """The right that was checked last; None = none."""
    identify: Callable[[], Awaitable[tuple[User, str]]] | None
    """`user` as it is now, and who impersonates it: raises Unauthorized or Forbidden once that is over. None: it is not asked."""

    def header(self, name: bytes) -> str: ...


class LongRunningRequests:
    """The open requests of all users: each holds a connection, and a watch cursor, a file or a process."""

    def __init__(self, limit: int, observe: Callable[[str, Any, int], None] | None = None) -> None:
        """`limit`: per user. `observe` is called with the verb and target of each request, and +1 at its start or -1 at its end."""
        self._limit, self._observe = limit, observe
        self._counts: Counter[str] = Counter()
        self._open: dict[_OpenRequest, None] = {}
        self._review: asyncio.Task[None] | None = None
        """Runs while anything is open."""

    @contextmanager
    def hold(self, call: AdmittedRequest, verb: str, target: Any) -> Iterator[None]:
        """Count a request for the duration of the context, which its user's loss of access ends. Raises TooManyRequests; Unauthorized or
        Forbidden where the access has ended."""
        user = call.user.name
        if self._counts[user] >= self._limit:
            text = f'user "{user}" has {self._limit} watches, followed logs and sessions open, as many as one may: end some, or share watches as informers do'
            raise TooManyRequests(text, retry_after=1)
        self._counts[user] += 1
        if self._observe is not None:
            self._observe(verb, target, 1)
        try:
            with self._end_with_access(call):
                yield
        finally:
            self._counts[user] -= 1
            if not self._counts[user]:
                del self._counts[user]
            if self._observe is not None:
                self._observe(verb, target, -1)

    @contextmanager
    def _end_with_access(self, call: AdmittedRequest) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None, "a request is served by a task"
        request, cancelling = _OpenRequest(call, task), task.cancelling()
        self._open[request] = None
        if self._review is None or self._review.done():
            self._review = asyncio.create_task(self._review_all(), name="review of open requests")
        try:
            yield
        except asyncio.CancelledError:
            if request.refusal is None or task.cancelling() > cancelling + 1:
                raise
            raise request.refusal from None
        finally:
            del self._open[request]
            if request.refusal is not None:
                task.uncancel()

    async def _review_all(self) -> None:
        while self._open:
            await asyncio.sleep(REVIEW_S)
            refusals = dict[Hashable, ApiError | None]()
            for request in list(self._open):
                access = request.access
                if access not in refusals:
                    await asyncio.sleep(0)  # nobody waits for more than one check
                    refusals[access] = await _find_refusal(request.call)
                refusal = refusals[access]
                if refusal is not None and request.refusal is None and request in self._open:
                    request.refusal = refusal
                    request.task.cancel()


@dataclass(eq=False, slots=True)
class _OpenRequest:
    call: AdmittedRequest
    task: asyncio.Task[object]
    refusal: ApiError | None = None
    """Why it is ended."""

    @property
    def access(self) -> Hashable:
        """What decides about its access: requests for which it is equal are checked once."""
        return self.call.header(b"authorization"), self.call.user, self.call.required


async def _find_refusal(call: AdmittedRequest) -> ApiError | None:
    """Why the request's user may not go on with it; None while they may, and where that cannot be found out just now."""
    try:
        user = (await call.identify())[0] if call.identify is not None else call.user
        if user.name != call.user.name:
            raise Unauthorized("Unauthorized")
        if call.required is not None and not user.is_master:
            require(call.authorizer, user, call.required)
    except ApiError as error:
        return error if error.code in (401, 403) else None
    except Exception:
        log.exception("whether %s may go on with %s could not be checked", call.user.name, call.path)
    return None
