"""`rowlock history` tells of a run what `rowlock why` would have told."""

from __future__ import annotations

from pathlib import Path

from tests.end_to_end.cluster import Cluster


def test_a_rank_that_failed_is_named_though_the_job_completed(cluster: Cluster, tmp_path: Path) -> None:
    """Also where it fails after rank 0 has ended the job."""
    cluster.up()
    over = tmp_path / "over"
    program = f'test "$RANK" = 0 && exit 0; until test -e {over}; do sleep 0.05; done; exit 3'
    cluster.run("rowlock", "run", "-d", "--name", "mixed", "-n", "2", "--", "sh", "-c", program)
    cluster.run("rowlock", "wait", "mixed", "--timeout", "200s")
    over.touch()
    cluster.until(
        lambda: "before that: rank 1" in cluster.run("rowlock", "history"),
        "the verdict that names the rank that failed",
    )
    cluster.run("rowlock", "delete", "--yes", "mixed")
    told = cluster.run("rowlock", "show", "mixed")
    assert "exit code 3" in told and "Completed" in told, told
