"""`rowlock plot`, `rowlock diff` and the REST API say of a program's metrics what the program itself knew."""

from __future__ import annotations

from typing import Any

from tests.end_to_end.cluster import Cluster

PROGRAM = """
import time
from tqdm import tqdm
for epoch in range(2):
    bar = tqdm(range(5), desc=f"Epoch {epoch}")
    for i in bar:
        time.sleep(0.11)
        bar.set_postfix(loss=f"{10 - 5 * epoch - i}")
    bar.close()
    print(f"val_acc={0.5 + epoch / 4}", flush=True)
print("step=10 lr=nan", flush=True)
"""
LOSS = [[float(5 * epoch + i), float(10 - 5 * epoch - i)] for epoch in range(2) for i in range(5)]


def plotted(cluster: Cluster, name: str) -> dict[str, Any]:
    return {one["metric"]: one["runs"][0]["points"] for one in cluster.json("rowlock", "plot", name, "--json")}


def test_all_faces_agree_on_the_curves_of_a_bar(cluster: Cluster) -> None:
    cluster.up()
    cluster.run("rowlock", "run", "--name", "fit", "--", "python", "-c", PROGRAM)
    found = plotted(cluster, "fit")
    assert found["loss"] == LOSS
    assert [y for _, y in found["val_acc"]] == [0.5, 0.75] and found["val_acc"][0][0] < 6
    assert found["lr"] == [[10.0, None]]
    (run,) = cluster.json("rowlock", "history", "--json")
    answer = cluster.api("GET", f"/api/v1/runs/{run['id']}/curves?points=4000")  # as the web UI asks
    points = {one["metric"]: one["points"] for one in answer["curves"]}
    assert answer["rank"] == "rank 0" and points == {**found, "lr": [[10.0, "NaN"]]}
    metrics = cluster.json("rowlock", "diff", "fit", "fit", "--json")["metrics"]
    assert metrics == {"loss": [1.0, 1.0], "val_acc": [0.75, 0.75], "lr": [None, None]}
    cluster.run("rowlock", "delete", "-y", "fit")
    assert plotted(cluster, run["id"]) == found  # of the archive
    assert "has no rank 7; it has rank 0" in cluster.run("rowlock", "plot", run["id"], "--rank", "7", code=1)
