"""`kill -9` of the server at random moments while a sweep makes runs, jobs wait for each other and ends are told: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter

import pytest
from tests.end_to_end.cluster import Cluster
from tests.end_to_end.run.test_notifications import Receiver, receiver

RUNS, TOLD, KILLS = 8, 3, 8


def told(server: Receiver) -> dict[str, set[str]]:
    """By job, the ids of what was told of its end."""
    found: dict[str, set[str]] = {}
    for _, body in list(server.got):
        message = json.loads(body)
        if message["event"] == "completed":
            found.setdefault(message["job"], set()).add(message["id"])
    return found


@pytest.mark.timeout(900)
def test_nothing_is_lost_and_nothing_is_done_twice(cluster: Cluster) -> None:
    ran = cluster.data.parent / "ran"
    with receiver() as server:
        allowed = ("--notify-allow", f"127.0.0.1:{server.server_port}")
        notify = ("--notify", f"http://127.0.0.1:{server.server_port}/hook", "--notify-on", "completed")
        cluster.up(*allowed)
        script = f"echo {{index}} >> {ran}; sleep 0.4"
        flags = ("--param", f"x=1..{RUNS}", "--max-parallel", "3")
        cluster.run("rowlock", "sweep", "tune", *flags, "--", "sh", "-c", script)
        order: tuple[str, ...] = ()
        for number in range(TOLD):
            name = f"step-{number}"
            cluster.run(
                "rowlock",
                "run",
                "-d",
                "--name",
                name,
                *order,
                *notify,
                "--",
                "sh",
                "-c",
                f"echo {name} >> {ran}; sleep 0.4",
            )
            order = ("--after", f"{name}:succeeded")
        chance = random.Random(43)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.6))  # any moment: that is the point
            os.kill(cluster.pid, signal.SIGKILL)
            cluster.up(*allowed)
        names = {f"step-{number}" for number in range(TOLD)}

        def sweep_phase() -> str:
            return str(cluster.json("rowlock", "sweep", "list", "--json")[0]["phase"])

        cluster.until(lambda: sweep_phase() == "Completed", lambda: f"the sweep to end, not {sweep_phase()}", every=0.5)
        cluster.until(
            lambda: told(server).keys() == names, lambda: f"all ends to be told, not {told(server)}", every=0.2
        )
        ends = told(server)
    assert Counter(ran.read_text().split()) == Counter([*map(str, range(RUNS)), *names]), "each ran once"
    order_of_steps = [line for line in ran.read_text().split() if line.startswith("step")]
    assert order_of_steps == sorted(names)
    assert all(len(ids) == 1 for ids in ends.values()), (
        "what comes twice, after a kill between answer and note, has the same id"
    )
    counts = cluster.json("rowlock", "sweep", "list", "--json")[0]["runs"]
    assert (counts["begun"], counts["completed"], counts["failed"], counts["deleted"]) == (RUNS, RUNS, 0, 0)
