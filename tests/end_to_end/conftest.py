"""A cluster of one's own for every test that asks for one: started with `rowlock up -d`, gone afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import BIN, Cluster, make


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that is not started yet: call `up`."""
    made = make(tmp_path / "data", tmp_path)
    try:
        yield made
    finally:
        subprocess.run([BIN / "rowlock", "down", "--yes"], env=made.env, capture_output=True, timeout=60)
