"""Who holds the GPUs for which a job waits, in a sentence."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rowlock.rest.cluster_view.gpu_holders import _Holder, holders_sentence


def holder(name: str, gpus: str, phase: str = "Running", project: str = "a", pods: int = 1) -> _Holder:
    return _Holder(name, project, f"id of {name}" if phase else "", phase, Decimal(gpus), pods)


@pytest.mark.parametrize(
    ("holders", "said"),
    [
        ([], ""),
        ([holder("x", "1")], "GPUs are held by x (1 GPU)."),
        (
            [holder("x", "4.0"), holder("y", "0.5", project="b"), holder("p", "1", phase="")],
            "GPUs are held by x (4 GPUs), y of project b (0.5 GPUs) and pod p (1 GPU).",
        ),
        (
            [holder(f"x{n}", "2") for n in range(6)],
            "GPUs are held by x0 (2 GPUs), x1 (2 GPUs), x2 (2 GPUs), x3 (2 GPUs) and 2 more (4 GPUs).",
        ),
        (
            [holder("x", "4", "Failed", "b", pods=4), holder("y", "1", "Completed"), holder("z", "1")],
            "x of project b has failed, but 4 pods of it still hold 4 GPUs: `rowlock delete x -p b` frees them."
            " y has completed, but 1 pod of it still holds 1 GPU: `rowlock delete y` frees it."
            " Other GPUs are held by z (1 GPU).",
        ),
    ],
)
def test_holders_are_named_and_those_that_are_over_with_what_frees_their_gpus(
    holders: list[_Holder], said: str
) -> None:
    assert holders_sentence(holders, "a") == said
