"""Three dozen odd pods, the same ones each time; `make hostile` goes on for ten minutes with others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.hostile.siege import Siege


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with lent(tmp_path) as made:
        yield made


@pytest.mark.timeout(400)
def test_odd_pods_stop_nobody(cluster: Cluster) -> None:
    siege = Siege(cluster)
    siege.play("first", 300.0, batches=3)
    siege.kill_server()
    siege.check_processes()
    assert not siege.complaints, siege.summary()
