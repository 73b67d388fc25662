"""What others wrote into a job is shown to a person at a terminal, and tells the terminal nothing."""

from __future__ import annotations

import json

import pytest

from rowlock.cli.output import show, show_json, table, tell, visible

ODD = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\re\x00\x7f\u202e"


def test_nothing_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    show(table(("NAME", "WHY"), [(ODD, "é ✓")]))
    tell(ODD)
    show_json({"name": ODD, "lines": "a\n\tb"})
    out, err = capsys.readouterr()
    assert not any((ord(letter) < 32 and letter not in "\n\t") or 0x7F <= ord(letter) < 0xA0 for letter in out + err)
    assert "\u202e" not in out + err and r"^?\u202e" in err, "what is written backwards reads as something else"
    assert "a^[]0;title^Gb^[[2Jc\\u009b31md e^@^?" in out and "é ✓" in out
    assert "a^[]0;title^Gb^[[2Jc\\u009b31md^Me^@^?" in err
    assert json.loads(out[out.index("{") :]) == {"name": ODD, "lines": "a\n\tb"}


def test_lines_and_columns_stay() -> None:
    assert visible("a\tb\r\nc\n") == "a\tb\r\nc\n"


def test_what_is_in_a_cell_passes_for_no_row() -> None:
    made = table(("NAME", "WHY"), [("a", "no room\njob-b  Completed"), ("c", "one\r\n\ttwo\u2028three")])
    assert made.splitlines() == ["NAME  WHY", "a     no room job-b  Completed", "c     one two three"]


def test_a_table_on_a_narrow_terminal_is_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    header, rows = (
        ("NAME", "PHASE", "WHY"),
        [("t1", "Pending", "no room is idle: wait for pods"), ("t2", "Running", "")],
    )
    wide = table(header, rows)
    assert len(wide.splitlines()) == 3
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for columns, expected in ((80, wide), (48, wide), (47, wide), (40, "t1\n  PHASE  Pending\n  WHY    no room is idle: wait for pods\nt2\n  PHASE  Running")):  # fmt: skip
        monkeypatch.setenv("COLUMNS", str(columns))
        assert table(header, rows) == expected, columns
    assert table(header, []) == "NAME  PHASE  WHY"
