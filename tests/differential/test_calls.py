"""Random calls, played on a real server and on ours.

Histories are answered alike, call by call and event by event, but for those in `DIFFERENT`: what differs there is known
and left. `python -m tests.differential.asking REAL OURS FROM TO` shows what does; a fix takes seeds from the table.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.differential.asking import Asked, play
from tests.differential.calls import SORTS, history, sorts_of

SEEDS = 300
DIFFERENT = {
    55: "a claim's first write of its status is a new revision there, even if it changes nothing",
}
"""Of 400 seeds 353 (the same) and 375 are the others: a custom object that was applied with empty annotations keeps
them on disk there, and the next write, which changes nothing, is a new revision because it drops them."""


def test_a_seed_names_its_calls_for_ever() -> None:
    assert [history(seed) for seed in range(50)] == [history(seed) for seed in range(50)]
    assert {sort.kind for seed in range(50) for sort in sorts_of(history(seed))} == {sort.kind for sort in SORTS}
    assert {call.method for seed in range(50) for call in history(seed)} == {"GET", "POST", "PUT", "PATCH", "DELETE"}


def test_what_a_server_chooses_is_no_difference() -> None:
    def seen(uid: str, revision: str, time: str) -> object:
        meta = {"uid": uid, "resourceVersion": revision, "creationTimestamp": time, "name": "a"}
        return Asked(None, "ns").normal({"metadata": meta, "again": {"uid": uid}})  # type: ignore[arg-type]

    assert seen("u-1", "5", "2026-01-02T03:04:05Z") == seen("u-2", "77", "2027-01-02T03:04:05Z")


@pytest.mark.real
@pytest.mark.timeout(900)
def test_random_calls_are_answered_alike(tmp_path: Path) -> None:
    if missing := real_cluster_missing():
        pytest.skip(missing)
    for part in ("real", "ours"):
        (tmp_path / part).mkdir()
    with (
        real_cluster(tmp_path / "real", "--crds") as real,
        embedded_server(tmp_path / "ours", "tests.conformance.embedded", "--without", "kubelet,scheduler") as ours,
    ):
        wrong = asyncio.run(play(real, ours, [seed for seed in range(SEEDS) if seed not in DIFFERENT]))
        if wrong:  # what two busy servers do at once may come in another order
            wrong = asyncio.run(play(real, ours, wrong, together=1))
    assert not wrong, "\n".join(f"seed {seed}\n  " + "\n  ".join(lines) for seed, lines in wrong.items())
