"""A cluster in memory whose controllers decide after every change."""

import pytest
from tests.system.cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()
