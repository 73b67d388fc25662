"""The log of a server is put aside at a start when it is long, and refused by its name when it is no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowlock.cli.grammar import CommandError
from rowlock.cli.start import process


def test_a_long_log_is_put_aside_and_the_one_before_it_is_forgotten(tmp_path: Path) -> None:
    path, aside = tmp_path / "server.log", tmp_path / "server.log.1"
    with process.open_log(str(path)) as log:
        log.write(b"short\n")
    with process.open_log(str(path)) as log:
        log.write(b"x" * process.MAX_LOG_BYTES)
    assert not aside.exists() and path.read_bytes().startswith(b"short")
    aside.write_text("before")
    process.open_log(str(path)).close()
    assert path.read_bytes() == b"" and aside.read_bytes().startswith(b"short")


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"server\.log cannot be used \(Is a directory\): move it away"):
        (tmp_path / "server.log").mkdir()
        process.open_log(str(tmp_path / "server.log"))
