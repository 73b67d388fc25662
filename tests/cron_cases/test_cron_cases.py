"""What kube-controller-manager 1.34 was seen to do with CronJobs, step by step over HTTP, is what ours does.

The runner plays kubelet, so ours is left out, and nobody waits for a clock: a step moves the last start into the past.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.cron_cases.__main__ import FILE, check
from tests.cron_cases.lives import LIVES
from tests.operator_cases.playing import server

RECORDED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
_CREATED = "Normal SuccessfulCreate: Created job tick-1"
_TAKEN = 'jobs.batch "tick-2" already exists, and this CronJob did not make it; delete it or rename one of them'
OURS: dict[str, dict[str, Any]] = {
    "too late": {"events": ["Warning MissSchedule: Missed scheduled time to start a job: $TIME"]},
    "another job has the name": {"events": [f"Warning FailedCreate: Error creating job: {_TAKEN}"]},
    "its own job has the name": {
        "cron": {"active": ["tick-1"], "last": "tick-1", "references": RECORDED["in time"][1]["cron"]["references"]},
        "table": RECORDED["in time"][1]["table"],
        "events": [_CREATED],
    },
}
"""Where Kubernetes 1.34 says nothing of a start that is not made, or loses a Job that it has made: what is seen last here
(docs/design/batch-jobs.md)."""


def as_ours() -> dict[str, Any]:
    """The record with what rowlock does better."""
    found = copy.deepcopy(RECORDED)
    for called, changes in OURS.items():
        state = found[called][-1]
        for part, change in changes.items():
            state[part] = {**state[part], **change} if isinstance(change, dict) else change
    return found


@pytest.mark.timeout(900)
def test_every_recorded_life(tmp_path_factory: pytest.TempPathFactory) -> None:
    with server(tmp_path_factory.mktemp("cluster")) as kubeconfig:
        assert RECORDED.keys() == LIVES.keys()
        expected = as_ours()
        again = {line.partition(", step ")[0] for line in check(kubeconfig, expected, LIVES)}
        wrong = check(kubeconfig, expected, sorted(again), together=1)  # once more, alone: the machine may be busy
        assert not wrong, "\n".join(wrong)
        falsified = copy.deepcopy(expected)
        falsified["in time"][0]["pods"] = 7
        assert check(kubeconfig, falsified, ["in time"]) == ["in time, step 1.pods: recorded 7, found 0"]
