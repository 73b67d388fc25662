"""`rowlock plot`, `rowlock diff` and the REST API say of a program's metrics what the program itself knew."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tests.curves.test_event_records import WRITTEN
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

WRITES = """
import base64, os, socket, time
written = base64.b64decode("%s")
for place in ("runs/train", os.environ["ROWLOCK_CHECKPOINT_DIR"]):
    os.makedirs(place, exist_ok=True)
    with open(f"{place}/events.out.tfevents.{int(time.time())}.{socket.gethostname()}", "wb") as file:
        file.write(written if place.startswith("runs") else written.replace(b"train/loss", b"valid/loss"))
"""
"""It prints nothing; its only figures are in event files of its working directory and of its checkpoints."""


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


def test_all_faces_agree_on_the_curves_of_event_files(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    program = WRITES % base64.b64encode(WRITTEN).decode()
    cluster.run("rowlock", "run", "--name", "silent", "--", "python", "-c", program, cwd=tmp_path)
    expected = {f"{part}/loss": [[1.0, 0.5], [2.0, 0.25]] for part in ("train", "valid")}
    assert plotted(cluster, "silent") == expected
    (run,) = cluster.json("rowlock", "history", "--json")
    answer = cluster.api("GET", f"/api/v1/runs/{run['id']}/curves?points=4000")  # as the web UI asks
    assert {one["metric"]: one["points"] for one in answer["curves"]} == expected
    metrics = cluster.json("rowlock", "diff", "silent", "silent", "--json")["metrics"]
    assert metrics == {name: [0.25, 0.25] for name in expected}
    files = cluster.api("GET", f"/api/v1/runs/{run['id']}/event-files")["files"]
    assert sorted(file["place"] for file in files) == [".", "runs/train"]
    cluster.run("rowlock", "delete", "-y", "silent")
    assert plotted(cluster, run["id"]) == expected
