"""Argon2id password hashes, computed on dedicated threads: a hash takes memory and tens of milliseconds by design.

The work is bounded: `WORKERS` hashes at once, each of `MEMORY_KIB`, and at most `MAX_WAITING` running or queued. Further logins are
refused before any work is done for them. The parameters exceed what OWASP's cheat sheet recommends for argon2id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from rowlock.errors import BadRequest, TooManyRequests

if TYPE_CHECKING:
    import argon2

MIN_LENGTH, MAX_BYTES = 10, 1_024
"""Fewest characters and most bytes of a password."""
MEMORY_KIB, ROUNDS, LANES = 32 * 1024, 3, 1
WORKERS = 2
MAX_WAITING = 32
T = TypeVar("T")


def check_password(password: object) -> str:
    """The password, if it may be set. Raises BadRequest, whose message never contains the password."""
    if not isinstance(password, str) or len(password) < MIN_LENGTH:
        raise BadRequest(f"the password is too short: {MIN_LENGTH} or more characters, please")
    if len(password.encode(errors="surrogatepass")) > MAX_BYTES:
        raise BadRequest(f"the password is too long: at most {MAX_BYTES} bytes, please")
    if not password.isprintable():
        raise BadRequest("the password has characters that cannot be typed, such as a tab or the end of a line")
    return password


class PasswordHashes:
    """Makes hashes and compares passwords with them, off the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(WORKERS, "passwords")
        self._waiting = 0

    async def make(self, password: str) -> str:
        """Hash a password with a new salt; returns PHC text. Raises TooManyRequests."""
        return await self._run(lambda: _hasher().hash(password))

    async def matches(self, stored: str, password: str) -> bool:
        """Whether `password` has the hash `stored`. "" matches nothing, and takes the same time. Raises TooManyRequests."""
        if len(password.encode(errors="surrogatepass")) > MAX_BYTES:
            return False
        return await self._run(lambda: _compare(stored or _hash_of_nobody(), password) and bool(stored))

    def close(self) -> None:
        """Cancel queued work and stop the threads, without waiting for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise TooManyRequests("many people log in at this moment: try again in a second", retry_after=1)
        self._waiting += 1
        loop = asyncio.get_running_loop()
        future = self._threads.submit(work)
        # The slot is freed when the hash ends, not when the client disconnects: a hash that has begun cannot be cancelled.
        future.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(self._make_room))
        return await asyncio.wrap_future(future)

    def _make_room(self) -> None:
        self._waiting -= 1


@cache
def _hasher() -> argon2.PasswordHasher:
    import argon2

    return argon2.PasswordHasher(time_cost=ROUNDS, memory_cost=MEMORY_KIB, parallelism=LANES, type=argon2.Type.ID)


@cache
def _hash_of_nobody() -> str:
    """Compared with where there is no account: the comparison takes as long, so timing does not reveal which names exist."""
    return _hasher().hash("nobody's")


def _compare(stored: str, password: str) -> bool:
    import argon2

    try:
        parameters = argon2.extract_parameters(stored)
        if parameters.memory_cost > 2 * MEMORY_KIB or parameters.time_cost > 2 * ROUNDS:
            return False  # a hand-written hash: one login must not use up the server's memory
        return _hasher().verify(stored, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError, UnicodeEncodeError):
        return False
