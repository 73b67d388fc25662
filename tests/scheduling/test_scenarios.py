"""The scenarios of the specification, as files: given, when, then."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scheduling.scenario import Scenario

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    assert Scenario().play(text) == text
