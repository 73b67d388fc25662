"""One real control plane for all acceptance tests in this folder: it starts once, and keeps an audit log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.kube.acceptance.real_plane import RealPlane
from tests.kube.chaos.api_server import ApiServer


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlane]:
    if missing := real_cluster_missing():
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp("plane")
    with real_cluster(directory, "--crds", "--audit") as kubeconfig:
        if not (directory / "audit.jsonl").exists():
            pytest.skip("the cluster of ROWLOCK_REAL_CLUSTER_KUBECONFIG keeps no audit log here: unset it")
        with ApiServer(directory) as server:
            yield RealPlane(directory, kubeconfig, server)
