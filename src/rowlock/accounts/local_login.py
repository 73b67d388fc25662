"""Users of this machine log in by who they are: the kernel says whose the other end of a Unix socket is (SO_PEERCRED), so nobody
types or keeps a token.

The directory of the socket is for everybody to read: the socket, the server's address and its certificate authority. A login is one line
of JSON. The names of users and groups are looked up beside the event loop, since a directory service may be slow.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import json
import os
import pwd
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from rowlock.errors import BadRequest

SOCKET_NAME = "login.sock"
USER_PREFIX, GROUP_PREFIX = "unix:", "unix:"
"""Before a user's and a group's name: no account with a password is called so."""
_CREDENTIALS = struct.Struct("3i")
_ANSWER_TIMEOUT = 5.0
_KEPT_S = 300.0
"""Seconds for which an account gets the same token again: logins in a loop cost no signatures."""
_MAX_KEPT = 1024
_MAX_OPEN = 64


@dataclass(frozen=True, slots=True)
class LocalUser:
    """A user of this machine, as the kernel and its user database know it."""

    name: str
    uid: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LocalToken:
    """What a login gives; `lifetime` in seconds."""

    token: str
    lifetime: int


IssueToken = Callable[[LocalUser], Awaitable[LocalToken]]


def find_local_user(uid: int) -> LocalUser | None:
    """By number; None where no user has it. May take as long as a directory service takes."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    names = []
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        with contextlib.suppress(KeyError):
            names.append(grp.getgrgid(gid).gr_name)
    return LocalUser(entry.pw_name, uid, tuple(sorted(names)))


def prepare_public_directory(directory: Path) -> None:
    """A directory that everybody may read and only we may write. Raises BadRequest where another user could change it."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise BadRequest(
            f"{directory} belongs to somebody else, or others may write there: users would be led to a server that is not ours."
            " Remove it, or name another directory with ROWLOCK_SYSTEM_DIR"
        )
    directory.chmod(0o755)


def peer_uid(connection: socket.socket) -> int:
    """Whose the other end is, as the kernel noted when it connected."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


class LocalLogin:
    """The socket, and what is answered there."""

    def __init__(self, directory: Path, issue: IssueToken, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._issue, self._clock = directory / SOCKET_NAME, issue, clock
        self._kept: dict[int, tuple[float, bytes]] = {}
        self._open = asyncio.Semaphore(_MAX_OPEN)

    async def run(self) -> None:
        """Serve until this task is cancelled."""
        self._path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, str(self._path))
        try:
            self._path.chmod(0o666)  # every user may connect; the token depends on the user's uid
            await server.serve_forever()
        finally:
            server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT), self._open:
                writer.write(await self._answer(peer_uid(writer.get_extra_info("socket"))))
                await writer.drain()
        except (OSError, TimeoutError):
            return  # a client that has gone, or takes nothing
        finally:
            writer.close()

    async def _answer(self, uid: int) -> bytes:
        now = self._clock()
        kept = self._kept.get(uid)
        if kept is not None and now - kept[0] < _KEPT_S:
            return kept[1]
        user = await asyncio.to_thread(find_local_user, uid)
        if user is None:
            return _line(error=f"no user of this machine has the number {uid}")
        issued = await self._issue(user)
        answer = _line(user=USER_PREFIX + user.name, token=issued.token, expiresIn=issued.lifetime)
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[uid] = (now, answer)
        return answer


def _line(**content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"
