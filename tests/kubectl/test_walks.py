"""kubectl cannot tell the embedded cluster from a real Kubernetes 1.34, but for what `known.json` lists."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.kubectl.walks import Outcome, missing, play

LONGEST_FIRST = ("pods", "jobs", "objects", "errors", "discovery", "cluster")
AT_ONCE = 3
"""Much of a walk is waiting for pods: the walks are played side by side, each on a server of its own. Six at once are
no sooner at an end on two cores, and waits of one second start late."""

Played = dict[str, "Future[Outcome]"]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    if why := missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("walks")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(play, name, folder / name) for name in LONGEST_FIRST}


@pytest.mark.parametrize("name", sorted(LONGEST_FIRST, key=LONGEST_FIRST.index, reverse=True))
def test_kubectl_sees_what_it_sees_on_a_real_cluster(name: str, played: Played) -> None:
    outcome = played[name].result()
    print(f"{name}: {outcome.same} of {len(outcome.steps)} steps as on the real cluster")
    assert not outcome.wrong, f"{name}: {len(outcome.wrong)} steps differ:\n" + "\n".join(outcome.wrong)
