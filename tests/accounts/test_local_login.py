"""The socket at which users of this machine log in by who they are."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rowlock.accounts import local_login
from rowlock.accounts.local_login import LocalLogin, LocalToken, LocalUser, find_local_user, prepare_public_directory
from rowlock.errors import BadRequest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux says with SO_PEERCRED who is at the other end of a socket"
)


@asynccontextmanager
async def open_socket(login: LocalLogin, path: Path) -> AsyncIterator[None]:
    task = asyncio.create_task(login.run())
    try:
        while not path.exists():
            await asyncio.sleep(0.01)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not path.exists()


async def log_in(path: Path) -> dict[str, Any]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"i am root\n")  # whatever a client says of himself counts for nothing
    line = await reader.readline()
    writer.close()
    return dict(json.loads(line))


def test_who_connects_gets_a_token_of_his_own(tmp_path: Path) -> None:
    asked: list[LocalUser] = []
    now = 0.0

    async def issue(user: LocalUser) -> LocalToken:
        asked.append(user)
        return LocalToken(f"token-{len(asked)}", 3600)

    async def play() -> None:
        nonlocal now
        path = tmp_path / local_login.SOCKET_NAME
        async with open_socket(LocalLogin(tmp_path, issue, lambda: now), path):
            assert path.stat().st_mode & 0o777 == 0o666
            answers = await asyncio.gather(*(log_in(path) for _ in range(5)))
            user = find_local_user(os.getuid())
            assert user is not None and {answer["user"] for answer in answers} == {f"unix:{user.name}"}
            before = len(asked)
            assert (await log_in(path))["token"] in {answer["token"] for answer in answers}
            assert len(asked) == before, "a loop of logins costs no signatures"
            now = 1000.0
            assert (await log_in(path))["token"] == f"token-{before + 1}"
            assert asked[-1] == user

    asyncio.run(play())


def test_a_number_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_login, "find_local_user", lambda uid: None)

    async def issue(user: LocalUser) -> LocalToken:
        raise AssertionError(user)

    async def play() -> None:
        path = tmp_path / local_login.SOCKET_NAME
        async with open_socket(LocalLogin(tmp_path, issue), path):
            assert "no user of this machine" in (await log_in(path))["error"]

    asyncio.run(play())


def test_nobody_else_may_own_the_directory(tmp_path: Path) -> None:
    prepare_public_directory(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o755
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    for name in ("open", "link"):
        with pytest.raises(BadRequest, match="belongs to somebody else"):
            prepare_public_directory(tmp_path / name)
