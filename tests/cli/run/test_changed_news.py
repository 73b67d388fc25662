"""What is worth a line once is not told before every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowlock.cli.run.changed_news import tell_changed


def test_a_sentence_is_told_again_when_it_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(**sentences: str) -> list[str]:
        tell_changed(str(tmp_path), sentences)
        return capsys.readouterr().err.splitlines()

    assert told(environment="A goes along.", python="") == ["A goes along."]
    assert told(environment="A goes along.", python="") == []
    assert told(environment="A goes along.", python="It is /p.") == ["It is /p."]
    assert told(environment="B goes along.", python="It is /p.") == ["B goes along."]
    assert told(environment="", python="It is /p.") == []
    assert told(environment="B goes along.", python="It is /p.") == ["B goes along."]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b"\xff"])
def test_a_broken_file_silences_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    (tmp_path / "told.json").write_bytes(content)
    tell_changed(str(tmp_path), {"python": "It is /p."})
    tell_changed(str(tmp_path / "absent"), {"python": "It is /p."})
    assert capsys.readouterr().err == "It is /p.\n" * 2
