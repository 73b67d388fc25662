"""The lines of the server's log."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
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


def test_a_log_that_grew_long_is_put_aside_while_the_server_writes(tmp_path: Path) -> None:
    """In a process of its own, for it exchanges the descriptors of stdout and stderr."""
    script = (
        "import logging, pathlib, sys; from rowlock.serve import BoundedLog\n"
        "log = logging.getLogger('x'); log.addHandler(BoundedLog(pathlib.Path(sys.argv[1]), 1000))\n"
        "for n in range(200): log.warning('%d ' + 'x' * 20, n)\n"
        "print('stdout, too', flush=True)"
    )
    path, other = tmp_path / "server.log", tmp_path / "other.log"
    for file in (path, other):
        with open(file, "ab") as output:
            subprocess.run([sys.executable, "-c", script, str(path)], stdout=output, stderr=output, check=True)
    aside = tmp_path / "server.log.1"
    assert 1000 < aside.stat().st_size < 1100 and path.stat().st_size < 1100 and path.stat().st_mode & 0o077 == 0
    assert path.read_text().endswith("xx\nstdout, too\n")
    numbers = [int(line.split()[0]) for line in (aside.read_text() + path.read_text()).splitlines()[:-1]]
    assert numbers == list(range(numbers[0], 200)), "no line is lost between the two"
    assert len(other.read_text().splitlines()) == 201, "a file that is not ours is the user's"
