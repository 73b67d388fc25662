"""`kill -9` of the server while CronJobs start: no start is lost, none is made twice, and each Job runs once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster

BATCH = "/apis/batch/v1/namespaces/runai-default"
CRONS, JOBS = f"{BATCH}/cronjobs", f"{BATCH}/jobs"
MINUTE, MINUTES, KILLS = 60, 2, 5
NAMES = {"allow-a": "Allow", "allow-b": "Allow", "forbid-a": "Forbid", "forbid-b": "Forbid"}
STARTED_FOR = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def cron_job(name: str, policy: str, script: str) -> dict[str, Any]:
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    spec = {"backoffLimit": 0, "template": {"spec": pod}}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedule": "* * * * *",
            "concurrencyPolicy": policy,
            "successfulJobsHistoryLimit": 100,
            "jobTemplate": {"spec": spec},
        },
    }


def starts(cluster: Cluster) -> dict[str, list[str]]:
    """By CronJob, the starts that its Jobs were made for."""
    found: dict[str, list[str]] = {name: [] for name in NAMES}
    for job in cluster.api("GET", JOBS)["items"]:
        (owner,) = job["metadata"]["ownerReferences"]
        found[owner["name"]].append(job["metadata"]["annotations"][STARTED_FOR])
    return {name: sorted(times) for name, times in found.items()}


def shown(start: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start))


@pytest.mark.timeout(900)
def test_each_start_is_made_once(cluster: Cluster) -> None:
    cluster.up()
    ran = cluster.data.parent / "ran"
    for name, policy in NAMES.items():
        cluster.api("POST", CRONS, cron_job(name, policy, f"echo $HOSTNAME >> {ran}"))
    first = (int(time.time()) // MINUTE + 1) * MINUTE
    chance = random.Random(45)
    for start in range(first, first + MINUTES * MINUTE, MINUTE):
        time.sleep(max(0.0, start - 0.5 - time.time()))  # a schedule knows no shorter time than a minute
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.7))  # any moment around a start: that is the point
            os.kill(cluster.pid, signal.SIGKILL)
            cluster.up()
    due = [shown(start) for start in range(first, first + MINUTES * MINUTE, MINUTE)]
    cluster.until(lambda: all(set(due) <= set(made) for made in starts(cluster).values()), "all starts to be made", 120)
    for name in NAMES:
        cluster.api("PATCH", f"{CRONS}/{name}", {"spec": {"suspend": True}})

    def unfinished() -> list[str]:
        ends = {job["metadata"]["name"]: job["status"] for job in cluster.api("GET", JOBS)["items"]}
        return [name for name, status in ends.items() if not status.get("succeeded") or "completionTime" not in status]

    cluster.until(lambda: not unfinished(), lambda: f"{unfinished()} to end", 180)
    made = starts(cluster)
    for name, times in made.items():
        later = [one for one in times if one not in due]  # a slow machine may have reached the next minute
        assert sorted(set(times)) == times and len(later) <= 3, (name, times)
    jobs = [job["metadata"]["name"] for job in cluster.api("GET", JOBS)["items"]]
    runs = Counter(line.rpartition("-")[0] for line in ran.read_text().split())
    assert runs == Counter(jobs), "each Job has one pod, which ran once"
    rows = {row["name"]: row for row in cluster.json("rowlock", "list", "--json")}
    assert {rows[name]["additionalFields"]["cronJob"] for name in jobs} == set(NAMES)
    assert "Made by:        CronJob forbid-a\n" in cluster.run(
        "rowlock", "describe", next(j for j in jobs if "forbid-a" in j)
    )
