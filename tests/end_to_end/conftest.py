"""A cluster of one's own for every test that asks for one: started with `rowlock up -d`, gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that is not started yet: call `up`."""
    with lent(tmp_path) as made:
        yield made
