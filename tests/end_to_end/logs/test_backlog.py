"""What ranks wrote before somebody follows them comes in the order of its time, and every line once."""

from __future__ import annotations

import sys

import pytest
from tests.end_to_end.cluster import Cluster

PROGRAM = """
import os, time
for step in range(100):
    print(os.environ["RANK"], step, flush=True)
    time.sleep(0.01)
time.sleep(4)  # what is younger is told as it comes
open("old" + os.environ["RANK"], "w").close()
while not os.path.exists("end"):
    time.sleep(0.05)
print(os.environ["RANK"], "last", flush=True)
"""


@pytest.mark.timeout(240)
def test_the_past_of_several_ranks_is_told_by_time(cluster: Cluster) -> None:
    cluster.up()
    place = cluster.data.parent
    (place / "train.py").write_text(PROGRAM)
    line = ("rowlock", "run", "-d", "-n", "2", "--name", "m", "--working-dir", str(place))
    cluster.run(*line, "--", sys.executable, "train.py")
    cluster.until(lambda: all((place / f"old{rank}").exists() for rank in range(2)), "both have a past")
    follower = f"(sleep 4; touch '{place}/end') & rowlock logs -f m --timestamps"
    said = cluster.run("sh", "-c", follower).splitlines()
    lines = [text.removeprefix("[rank 0] ").removeprefix("[rank 1] ") for text in said]
    assert len(lines) == 202 and len(set(lines)) == 202
    stamps = [text.partition(" ")[0] for text in lines if not text.endswith("last")]
    assert stamps == sorted(stamps) and len(stamps) == 200
    assert [text.rpartition(" ")[2] for text in lines[-2:]] == ["last", "last"]
