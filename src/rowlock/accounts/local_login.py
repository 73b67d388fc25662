"""Login of this machine's Unix users: the kernel names the user at the other end of a Unix socket (SO_PEERCRED), so no password or
token is typed or stored.

Every user may read the socket's directory, which also holds the server's address and its certificate authority. A login answers one line
of JSON. User and group names are looked up on a thread, because a directory service may be slow.
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
"""Prefixes of user and group names; names of accounts with a password cannot contain a colon."""
_CREDENTIALS = struct.Struct("3i")
_ANSWER_TIMEOUT = 5.0
_KEPT_S = 300.0
"""Seconds for which a user gets the same token again, so that logins in a loop do not sign a token each."""
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
    """The result of a login; `lifetime` in seconds."""

    token: str
    lifetime: int


IssueToken = Callable[[LocalUser], Awaitable[LocalToken]]


def find_local_user(uid: int) -> LocalUser | None:
    """The user with this uid, or None. Blocks while a directory service is asked."""
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
    """Create a directory that all users may read and only this one may write. Raises BadRequest if another user could change it."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise BadRequest(
            f"{directory} belongs to somebody else, or others may write there: users would be led to a server that is not ours."
            " Remove it, or name another directory with ROWLOCK_SYSTEM_DIR"
        )
    directory.chmod(0o755)


def peer_uid(connection: socket.socket) -> int:
    """The uid of the process at the other end, as the kernel recorded it when it connected."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


class LocalLogin:
    """Listens on the login socket and answers each connection with a token."""

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
            return  # the client has disconnected, or does not read
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
