"""The log of a server that is being started: its end is why a start failed."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO

from rowlock.cli.grammar import CommandError

MAX_BYTES = 16 << 20
"""Of a log that a start goes on with; the one before the last is forgotten."""


def open_to_append(path: str) -> IO[bytes]:
    """For the end of a server's log; a long one is put aside first, beside it. Raises CommandError."""
    try:
        with suppress(FileNotFoundError):
            if os.path.isfile(path) and os.path.getsize(path) > MAX_BYTES:
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
