"""The recorded walks against a real API server that is built and started here: the record is still what it says.

Without this nobody would know whether a step that fails is rowlock's fault or the record's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conformance.subjects import real_cluster, real_cluster_missing
from tests.kubectl import walks

pytestmark = pytest.mark.real
WITHOUT_A_NODE = ("discovery", "errors", "objects")
"""The walks that start no pod and look at no node."""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    why = real_cluster_missing() or walks.missing()
    if why:
        pytest.skip(why)
    with real_cluster(tmp_path_factory.mktemp("real"), "--operator", "--scheduler") as path:
        yield path


@pytest.mark.parametrize("name", WITHOUT_A_NODE)
def test_a_real_api_server_answers_as_recorded(name: str, kubeconfig: Path) -> None:
    known = replace(walks.Known.of(name), differs={})
    outcome = walks.judged(name, kubeconfig, known)
    if outcome.wrong:  # some steps give kubectl one second, which a busy machine may need itself: those pass then
        outcome = walks.judged(name, kubeconfig, known)
    assert not outcome.wrong, "\n".join(outcome.wrong)
