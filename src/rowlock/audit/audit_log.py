"""Lines of JSON in `audit.jsonl`, written by a thread: no request waits for the disk, and none fails with it.

What is written: every change, every login, what is run in pods, who reads Secrets, and every refusal (401, 403, 429). Of a request
the line has the path, never its query, body or token. Files are rotated and bounded; so is what waits for the disk, and what
somebody without a token can make us write: a line says how many were left out.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger(__name__)

FILE_NAME = "audit.jsonl"
MAX_BYTES, KEPT_FILES = 32 << 20, 4
"""Bytes of a file before it is put aside, and how many are kept besides the current one."""
GATHERING = 0.02
"""Seconds in which lines gather before they are written: a change of threads for each would slow the requests that
follow."""
MAX_WAITING = 20_000
"""Lines that wait for the disk; more are left out."""
MAX_STRANGERS = 20
"""Refusals of people without a token that are written in a second."""
_REFUSALS = frozenset({401, 403, 429})
_OF_STRANGERS = frozenset({401, 429})
"""The codes of answers to requests whose sender has not been authenticated."""
_MAX_TEXT = 512
"""Characters of a path or a name."""


class AuditLog:
    """One server's. `record` is called in the event loop, `run` is a task of it. `clock` gives Unix seconds."""

    def __init__(self, directory: Path, clock: Callable[[], float] = time.time, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._clock, self._max_bytes = directory / FILE_NAME, clock, max_bytes
        self._waiting: deque[dict[str, Any]] = deque()
        self._left_out = self._strangers = self._second = 0
        self._wake = asyncio.Event()
        self._lost = 0
        self._is_broken = False

    def record(
        self,
        face: str,
        user: str,
        address: str,
        method: str,
        path: str,
        *,
        code: int,
        sensitive: bool = False,
        **more: str,
    ) -> None:
        """One answered request; `sensitive` is written though it only reads. `more` are words of Kubernetes: verb, resource …"""
        if method in ("GET", "HEAD", "OPTIONS") and not sensitive and code not in _REFUSALS:
            return
        now = self._clock()
        if len(self._waiting) >= MAX_WAITING or ((not user or code in _OF_STRANGERS) and self._is_flood(int(now))):
            self._left_out += 1
            return
        entry: dict[str, Any] = {
            "time": now, "face": face, "user": user[:_MAX_TEXT], "address": address, "method": method,
            "path": path[:_MAX_TEXT], **{name: text[:_MAX_TEXT] for name, text in more.items() if text}, "code": code,
        }  # fmt: skip
        if self._left_out or self._lost:
            lost, self._lost = self._lost, 0  # counted by the thread, which is not at work while nothing is lost
            entry["leftOut"], self._left_out = self._left_out + lost, 0
        self._waiting.append(entry)
        self._wake.set()

    def _is_flood(self, second: int) -> bool:
        if second != self._second:
            self._second, self._strangers = second, 0
        self._strangers += 1
        return self._strangers > MAX_STRANGERS

    async def run(self) -> None:
        """Write until cancelled; what was recorded until then is written, too."""
        writing: asyncio.Future[None] | None = None
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(GATHERING)
                writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._take()))
                await asyncio.shield(writing)
        finally:
            if writing is not None:
                await asyncio.wait({writing})  # two at once would rotate the files twice
            self._write(self._take())

    def _take(self) -> list[dict[str, Any]]:
        self._wake.clear()
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def _write(self, entries: list[dict[str, Any]]) -> None:
        """In a thread. A disk that takes nothing costs lines, and is told once."""
        if not entries:
            return
        for entry in entries:
            moment = datetime.fromtimestamp(entry["time"], UTC)
            entry["time"] = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"
        text = b"".join(_encode(entry) + b"\n" for entry in entries)
        try:
            if self._append(text) >= self._max_bytes:
                self._rotate()
        except OSError as error:
            self._lost += sum(1 + entry.get("leftOut", 0) for entry in entries)
            if not self._is_broken:
                log.error(
                    "the audit log %s cannot be written (%s): requests go on, without it", self._path, error.strerror
                )
            self._is_broken = True
            return
        if self._is_broken:
            log.warning("the audit log %s is written again", self._path)
        self._is_broken = False

    def _append(self, text: bytes) -> int:
        """All of it or nothing: half a line would be glued to the next one. Returns the size of the file."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            os.fchmod(fd, 0o600)
            written = 0
            try:
                while written < len(text):
                    written += os.write(fd, text[written:])
            except OSError:
                os.ftruncate(fd, status.st_size)
                raise
            return status.st_size + len(text)
        finally:
            os.close(fd)

    def _rotate(self) -> None:
        for number in range(KEPT_FILES - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
        os.replace(self._path, f"{self._path}.1")


def _encode(entry: dict[str, Any]) -> bytes:
    """As JSON; half characters, which no encoding has, as question marks."""
    try:
        return msgspec.json.encode(entry)
    except UnicodeEncodeError:
        plain = {name: v.encode(errors="replace").decode() if isinstance(v, str) else v for name, v in entry.items()}
        return msgspec.json.encode(plain)
