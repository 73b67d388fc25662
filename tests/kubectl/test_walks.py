"""kubectl cannot tell the embedded cluster from a real Kubernetes 1.34, but for what `known.json` lists."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.kubectl.walks import KNOWN, Outcome, missing, play

LONGEST_FIRST = ("pods", "jobs", "objects", "errors", "discovery", "cluster")
AT_ONCE = 6
"""Much of a walk is waiting for pods: the walks are played side by side, each on a server of its own."""

Played = dict[str, "Future[Outcome]"]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    if why := missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("walks")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(play, name, folder / name) for name in LONGEST_FIRST}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(LONGEST_FIRST, key=LONGEST_FIRST.index, reverse=True))
def test_kubectl_sees_what_it_sees_on_a_real_cluster(name: str, played: Played) -> None:
    outcome = played[name].result()
    judge(name, outcome)
    better = sorted(set(KNOWN[name]["differs"]) - outcome.failed)
    assert not better, f"{name}: these steps pass now, take them out of known.json: {better}"


def judge(name: str, outcome: Outcome) -> None:
    """Fails on a step that differs and is not known to."""
    known = KNOWN[name]
    assert not outcome.trouble, outcome.trouble
    listed = set(known["differs"]) | set(known["maybe"])
    strangers = listed - set(outcome.steps)
    assert not strangers, f"known.json names steps that the walk {name} does not have: {sorted(strangers)}"
    passed, failed = len(outcome.steps) - len(outcome.failed), len(outcome.failed)
    print(f"{name}: {passed} of {len(outcome.steps)} steps as on the real cluster, {failed} differ")
    worse = [outcome.steps[step] for step in sorted(outcome.failed - listed)]
    assert not worse, f"{name}: {len(worse)} steps differ that did not before:\n" + "\n".join(worse)
