"""The server's log: one line a message, whatever names and texts of users are in it, and no flood of the same one.

Names of objects, messages of programs and words of clients stand in these lines. Control characters in them are written
as escapes: nobody can forge a line, or talk to the terminal of who reads it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

BURST = 20
"""Lines of one kind (the same place in the code, whatever its values) that are written in one `WINDOW`."""
WINDOW = 10.0  # seconds
_MAX_KINDS = 1_000
_UNPRINTABLE = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in _UNPRINTABLE}


class LineFormatter(logging.Formatter):
    """Time, level, logger, message; a traceback below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname).1s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_ESCAPES)
        return super().formatMessage(record)


@dataclass(slots=True)
class _Window:
    begin: float
    written: int = 0
    dropped: int = 0


class RateLimit(logging.Filter):
    """At most `BURST` lines of a kind in a `WINDOW`; the next one that is written says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[tuple[str, int], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, kind = self._clock(), (record.pathname, record.lineno)
        window = self._windows.get(kind)
        if window is None or now - window.begin >= WINDOW:
            if window is not None and window.dropped:
                record.msg = f"{record.getMessage()} ({window.dropped} lines like this one were left out)"
                record.args = ()
            if len(self._windows) >= _MAX_KINDS:
                self._windows.clear()
            window = self._windows[kind] = _Window(now)
        if window.written >= BURST:
            window.dropped += 1
            return False
        window.written += 1
        return True


def configure_logging() -> None:
    """Everything from level INFO on goes to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    handler.addFilter(RateLimit())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
