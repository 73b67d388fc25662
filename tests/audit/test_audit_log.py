"""The audit log: what is in it, what never is, and that neither a flood nor a broken disk stops a request."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.rest.test_tenants import OWNER, PASSWORD, TYPIST, Tenancy, play

from rowlock.audit import audit_log
from rowlock.audit.audit_log import FILE_NAME, AuditLog


async def flush(log: AuditLog) -> None:
    """Run it once: what it holds when it is cancelled is written."""
    task = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def lines(directory: Path, name: str = FILE_NAME) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / name).read_text().splitlines()]


def test_both_apis_say_who_did_what_and_no_secret() -> None:
    async def check(tenancy: Tenancy) -> None:
        namespace = "/api/v1/namespaces/runai-mine-plain"
        secret = {"metadata": {"name": "s"}, "stringData": {"password": "hush-hush-hush"}}
        assert (await tenancy.ask(TYPIST, "POST", f"{namespace}/secrets", secret)).status_code == 201
        assert (await tenancy.ask(TYPIST, "GET", f"{namespace}/secrets/s")).status_code == 200
        assert (await tenancy.ask(TYPIST, "GET", f"{namespace}/pods?limit=1")).status_code == 200
        assert (await tenancy.ask(TYPIST, "GET", "/api/v1/nodes")).status_code == 403
        assert (await tenancy.ask("no-such-token", "GET", f"{namespace}/pods")).status_code == 401
        login = {"grantType": "password", "username": "typist", "password": "wrong wrong"}
        assert (await tenancy.ask("", "POST", "/api/v1/token", login)).status_code == 400
        login["username"] = "typed-a-password-here"
        assert (await tenancy.ask("", "POST", "/api/v1/token", login)).status_code == 400
        headers = {"Impersonate_User": "eve"}
        assert (await tenancy.ask(OWNER, "DELETE", f"{namespace}/pods/x", None, **headers)).status_code == 403
        await flush(tenancy.audit_log)
        path = Path(tenancy.audit_log._path)
        text, found = path.read_text(), lines(path.parent)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for hidden in (
            "hush-hush",
            PASSWORD,
            "wrong wrong",
            "typed-a-password",
            OWNER,
            tenancy.typed,
            "limit=1",
            "no-such-token",
        ):
            assert hidden not in text, hidden
        said = [(one["face"], one["user"], one["method"], one["path"].rsplit("/", 1)[-1], one["code"]) for one in found]
        of_typist = [one[2:] for one in said if one[1] == "typist"]
        assert of_typist == [
            ("POST", "token", 200), ("POST", "secrets", 201), ("GET", "s", 200), ("GET", "nodes", 403), ("POST", "token", 400),
        ]  # fmt: skip
        assert ("kubernetes", "", "GET", "pods", 401) in said and ("rest", "", "POST", "token", 400) in said
        assert any((one[0], *one[2:]) == ("rest", "POST", "users", 201) for one in said)
        as_eve = next(one for one in found if one["user"] == "eve")
        assert (as_eve["impersonator"], as_eve["resource"], as_eve["code"]) == ("rowlock-admin", "pods", 403)

    play(check)


def test_files_are_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        log = AuditLog(tmp_path, max_bytes=1000)
        for number in range(200):
            log.record("rest", "ana", "127.0.0.1", "POST", f"/{number}", code=201)
            await flush(log)

    asyncio.run(main())
    files = sorted(path.name for path in tmp_path.iterdir())
    assert set(files) <= {FILE_NAME, *(f"{FILE_NAME}.{n}" for n in range(1, audit_log.KEPT_FILES + 1))}
    assert len(files) >= audit_log.KEPT_FILES
    assert all(path.stat().st_size < 1300 and stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    newest = (lines(tmp_path) if (tmp_path / FILE_NAME).exists() else []) or lines(tmp_path, f"{FILE_NAME}.1")
    assert newest[-1]["path"] == "/199"


def test_strangers_cannot_fill_it_and_nothing_waits_without_bound(tmp_path: Path) -> None:
    async def main() -> None:
        log = AuditLog(tmp_path, clock=lambda: 1_800_000_000.5)
        for _ in range(1000):
            log.record("rest", "", "10.0.0.9", "GET", "/x" * 10_000, code=401)
        log.record("rest", "ana\nforged", "127.0.0.1", "POST", "/y", code=201)
        for _ in range(2 * audit_log.MAX_WAITING):
            log.record("rest", "ana", "127.0.0.1", "POST", "/z", code=201)
        await flush(log)

    asyncio.run(main())
    found = lines(tmp_path)
    assert len(found) == audit_log.MAX_WAITING
    refused, forged = [one for one in found if one["code"] == 401], found[audit_log.MAX_STRANGERS]
    assert len(refused) == audit_log.MAX_STRANGERS and len(refused[0]["path"]) == 512
    assert (forged["user"], forged["leftOut"]) == ("ana\nforged", 1000 - audit_log.MAX_STRANGERS)
    assert forged["time"] == "2027-01-15T08:00:00.500Z"


def test_a_disk_that_takes_nothing_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        log = AuditLog(tmp_path)
        (tmp_path / FILE_NAME).mkdir()
        with caplog.at_level(logging.WARNING, "rowlock.audit.audit_log"):
            for _ in range(3):
                log.record("rest", "ana", "127.0.0.1", "POST", "/lost", code=201)
                await flush(log)
            assert [one.levelname for one in caplog.records] == ["ERROR"]
            (tmp_path / FILE_NAME).rmdir()
            log.record("rest", "ana", "127.0.0.1", "POST", "/kept", code=201)
            await flush(log)
        assert [one.levelname for one in caplog.records] == ["ERROR", "WARNING"]

    asyncio.run(main())
    assert [one["path"] for one in lines(tmp_path)] == ["/kept"]


def test_it_is_written_while_the_server_runs(tmp_path: Path) -> None:
    async def main() -> None:
        log = AuditLog(tmp_path)
        task = asyncio.create_task(log.run())
        log.record("rest", "ana", "127.0.0.1", "DELETE", "/one", code=202)
        while not (tmp_path / FILE_NAME).exists() or not lines(tmp_path):
            await asyncio.sleep(0.005)
        log.record("rest", "ana", "127.0.0.1", "DELETE", "/two", code=202)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [one["path"] for one in lines(tmp_path)] == ["/one", "/two"]

    asyncio.run(main())


def test_a_disk_that_takes_half_a_line_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, full = os.write, [False]

    def write(fd: int, data: bytes) -> int:
        if not full[0]:
            return real(fd, data)
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[: len(data) // 2])

    async def main() -> None:
        log = AuditLog(tmp_path)
        monkeypatch.setattr(os, "write", write)
        for full[0], path in ((False, "/before"), (True, "/lost"), (True, "/lost"), (False, "/after")):
            log.record("rest", "ana", "127.0.0.1", "POST", path, code=201)
            await flush(log)
        log.record("rest", "ana", "127.0.0.1", "POST", "/last", code=201)
        await flush(log)

    asyncio.run(main())
    assert [one["path"] for one in lines(tmp_path)] == ["/before", "/after", "/last"]
    assert sum(one.get("leftOut", 0) for one in lines(tmp_path)) == 2


def test_an_odd_name_or_file_costs_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        log = AuditLog(tmp_path)
        os.mkfifo(tmp_path / FILE_NAME)
        log.record("rest", "ana", "127.0.0.1", "POST", "/lost", code=201)
        await flush(log)
        (tmp_path / FILE_NAME).unlink()
        log.record("rest", "a\ud800\udcff", "127.0.0.1", "POST", "/\x00\n", code=201, name="\udc80")
        await flush(log)

    asyncio.run(main())
    (line,) = lines(tmp_path)
    assert (line["user"], line["name"], line["path"]) == ("a??", "?", "/\x00\n")
