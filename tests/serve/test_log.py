"""The lines of the server's log."""

from __future__ import annotations

import logging
from typing import Any

from rowlock.serve import BURST, WINDOW, LineFormatter, RateLimit


def record(message: str, *args: Any, line: int = 1) -> logging.LogRecord:
    return logging.LogRecord("rowlock.kubelet", logging.WARNING, "kubelet.py", line, message, args, None)


def test_nobody_forges_a_line_or_talks_to_a_terminal() -> None:
    text = LineFormatter().format(record("pod %s", "a\n2026-01-01 I rowlock all is well\r\x1b[2J\u202egnp\x9b"))
    assert "\n" not in text and "\x1b" not in text
    assert text.endswith("W rowlock.kubelet pod a\\n2026-01-01 I rowlock all is well\\r\\x1b[2J\\u202egnp\\x9b")


def test_letters_of_all_languages_stay() -> None:
    assert LineFormatter().format(record("Größe 大小")).endswith("Größe 大小")


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        made = record("a bug")
        made.exc_info = (type(error), error, error.__traceback__)
    assert LineFormatter().format(made).splitlines()[-1] == "ValueError: wrong"


def test_a_flood_of_one_kind_is_cut_and_counted() -> None:
    now = 0.0
    limit = RateLimit(lambda: now)
    written = [limit.filter(record("pod %s is odd", n)) for n in range(BURST + 30)]
    assert written == [True] * BURST + [False] * 30
    assert limit.filter(record("another place", line=2)), "others are not held back"
    now = WINDOW
    next_record = record("pod %s is odd", "z")
    assert limit.filter(next_record)
    assert next_record.getMessage() == "pod z is odd (30 lines like this one were left out)"
    assert record("x").getMessage() == "x"
