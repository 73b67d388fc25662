"""Random calls, played on a real server and on ours.

`ALIKE` are the seeds that are answered alike, call by call; the others differ in something that we know and have left,
or have not looked at: `python -m tests.differential.asking REAL OURS FROM TO` shows what, and a fix adds seeds here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conformance.subjects import embedded_server, real_cluster, real_cluster_missing
from tests.differential.asking import Asked, play
from tests.differential.calls import SORTS, history, sorts_of

ALIKE = (
    1, 3, 6, 9, 13, 14, 16, 17, 19, 23, 29, 36, 37, 42, 44, 46, 48, 50, 51, 53, 54, 59, 69, 71, 75, 77, 84, 88, 92, 94,
    96, 98, 102, 108, 109, 112, 116, 117, 119, 124, 125, 130, 133, 139, 142, 143, 144, 145, 147, 148,
)  # fmt: skip


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
@pytest.mark.timeout(300)
def test_random_calls_are_answered_alike(tmp_path: Path) -> None:
    if missing := real_cluster_missing():
        pytest.skip(missing)
    for part in ("real", "ours"):
        (tmp_path / part).mkdir()
    with (
        real_cluster(tmp_path / "real", "--crds") as real,
        embedded_server(tmp_path / "ours", "tests.conformance.embedded", "--without", "kubelet,scheduler") as ours,
    ):
        wrong = asyncio.run(play(real, ours, ALIKE))
        if wrong:  # what two busy servers do at once may come in another order
            wrong = asyncio.run(play(real, ours, wrong, together=1))
    assert not wrong, "\n".join(f"seed {seed}\n  " + "\n  ".join(lines) for seed, lines in wrong.items())
