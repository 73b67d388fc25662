"""Starts the server's process in its own session and waits until it answers. The end of its log tells why a start failed."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from typing import IO, Any

from rowlock.cli.grammar import CommandError
from rowlock.cli.output import tell
from rowlock.cli.server_json import read_server_json

MAX_LOG_BYTES = 16 << 20
"""A start renames a longer log, replacing the log that was renamed before."""
_STALLED_TIMEOUT = 30.0
"""Seconds without progress (CPU time, a line in its log) after which the command gives up on a starting server."""
_STAGE_PREFIX = "starting: "
"""Prefix of log lines in which a starting server says what it does (`assembly.py`)."""
_KILL_TIMEOUT = 5.0  # seconds between SIGTERM and SIGKILL for a server that did not start
_POLL_INTERVAL = 0.02


def start_server(directory: str, argv: list[str]) -> dict[str, Any]:
    """Start the server in its own session and return its server.json as soon as it answers. Raises CommandError with the
    last lines of its log."""
    log = os.path.join(directory, "server.log")
    with open_log(log) as output:
        log_offset = output.tell()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd=directory
        )
    is_ready = False
    try:
        progress = _StartProgress(process.pid, log, log_offset)
        while not progress.is_stalled():
            if process.poll() is not None:
                progress.show_stages()
                raise CommandError(last_line(log, log_offset) or f"the server ended at once; {log} may say why")
            server_json = read_server_json(directory)
            if server_json and server_json.get("pid") == process.pid and _accepts_connections(str(server_json["url"])):
                is_ready = True
                return server_json
            time.sleep(_POLL_INTERVAL)
        raise CommandError(
            f"the server did nothing for {_STALLED_TIMEOUT:.0f} s, did not answer, and was stopped; {log} may say why"
        )
    finally:
        if not is_ready:  # also after Ctrl-C: it would go on holding the directory's lock
            _end_process(process)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_KILL_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _StartProgress:
    """Watches a starting server: it makes progress while it uses CPU time or writes to its log. Shows the stages of a
    long start."""

    def __init__(self, pid: int, log: str, log_offset: int) -> None:
        self._pid, self._log, self._offset = pid, log, log_offset
        self._seen: tuple[int, int] = (0, 0)
        self._last_progress = time.monotonic()

    def is_stalled(self) -> bool:
        self.show_stages()
        seen = (self._offset, self._cpu_ticks())
        if seen != self._seen:
            self._seen, self._last_progress = seen, time.monotonic()
        return time.monotonic() - self._last_progress > _STALLED_TIMEOUT

    def show_stages(self) -> None:
        with open(self._log, "rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for stage in whole.decode(errors="replace").splitlines():
            if stage.startswith(_STAGE_PREFIX):
                tell(stage)

    def _cpu_ticks(self) -> int:
        try:
            with open(f"/proc/{self._pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return 0  # no /proc here, or the process has just ended: only the log can tell
        return int(fields[11]) + int(fields[12])


def _accepts_connections(url: str) -> bool:
    import socket
    import urllib.parse

    parts = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 443), 1).close()
    except OSError:
        return False
    return True


def open_log(path: str) -> IO[bytes]:
    """Open a server's log for appending. A log longer than `MAX_LOG_BYTES` is first renamed to `….1`. Raises CommandError."""
    try:
        with suppress(FileNotFoundError):
            if os.path.isfile(path) and os.path.getsize(path) > MAX_LOG_BYTES:
                os.replace(path, f"{path}.1")
        return open(path, "ab")
    except OSError as error:
        raise CommandError(f"{path} cannot be used ({error.strerror}): move it away, and it is made anew") from None


def last_line(log: str, log_offset: int) -> str:
    """The last line that the server has logged since this start."""
    with open(log, "rb") as file:
        file.seek(log_offset)
        lines = [text for text in file.read().decode(errors="replace").splitlines() if text.strip()]
    return lines[-1].removeprefix("rowlock: ").removeprefix("error: ") if lines else ""
