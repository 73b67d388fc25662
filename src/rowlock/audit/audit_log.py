"""Lines of JSON in `audit.jsonl`, written by a thread: no request waits for the disk or fails because of it.

Logged are every change, every login, commands run in pods, reads of Secrets, and every refusal (401, 403, 429). A line has the
request's path, never its query, body or token. Files are rotated and bounded. So are the lines that wait for the disk and those that
clients without a token can cause: a later line says how many were left out.
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
"""Size in bytes at which a file is rotated, and the number of rotated files kept."""
GATHERING = 0.02
"""Seconds for which lines are collected before they are written: a thread switch for each line would slow down
requests."""
MAX_WAITING = 20_000
"""Most lines that wait for the disk; further ones are dropped and counted."""
MAX_STRANGERS = 20
"""Most lines per second about requests of unauthenticated clients."""
_REFUSALS = frozenset({401, 403, 429})
_OF_STRANGERS = frozenset({401, 429})
"""Status codes counted as answers to unauthenticated clients, even if a user is named."""
_MAX_TEXT = 512
"""Most characters of a path or a name."""


class AuditLog:
    """One server's audit log. Call `record` in the event loop and start `run` as a task. `clock` gives Unix seconds."""

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
        """Log one answered request. Reads are logged only if refused or `sensitive`. `more` are Kubernetes' fields: verb, resource …"""
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
            lost, self._lost = self._lost, 0  # counted by the writing thread
            entry["leftOut"], self._left_out = self._left_out + lost, 0
        self._waiting.append(entry)
        self._wake.set()

    def _is_flood(self, second: int) -> bool:
        if second != self._second:
            self._second, self._strangers = second, 0
        self._strangers += 1
        return self._strangers > MAX_STRANGERS

    async def run(self) -> None:
        """Write lines until cancelled, then those still waiting."""
        writing: asyncio.Future[None] | None = None
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(GATHERING)
                writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._take()))
                await asyncio.shield(writing)
        finally:
            if writing is not None:
                await asyncio.wait({writing})  # two writers at once would rotate the files twice
            self._write(self._take())

    def _take(self) -> list[dict[str, Any]]:
        self._wake.clear()
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def _write(self, entries: list[dict[str, Any]]) -> None:
        """Runs in a thread. If the disk fails, the lines are dropped and counted, and the error is logged once."""
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
        """Append all of it or nothing, because the next line would be appended to half a line. Returns the file's size in bytes."""
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
    """Encode as JSON, with question marks for lone surrogates, which UTF-8 cannot encode."""
    try:
        return msgspec.json.encode(entry)
    except UnicodeEncodeError:
        plain = {name: v.encode(errors="replace").decode() if isinstance(v, str) else v for name, v in entry.items()}
        return msgspec.json.encode(plain)
