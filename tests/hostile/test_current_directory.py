"""Modules that lie in the current directory are not imported: whoever can write there must not run as the user."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import BIN, Cluster, make

PLANTED = (
    "uvicorn",
    "starlette",
    "click",
    "msgspec",
    "yaml",
    "httptools",
    "psutil",
    "secrets",
    "json",
    "ssl",
    "platform",
    "rowlock",
)
"""Names that our programs import, from the standard library and from others."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = make(tmp_path / "data", tmp_path)
    yield cluster
    subprocess.run(["rowlock", "down", "--yes"], env=cluster.env, capture_output=True, timeout=200)


def test_a_planted_module_is_not_run(cluster: Cluster, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    for name in PLANTED:
        (planted / f"{name}.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'a').write({name!r} + ' ')\n")
    lines = (
        ("rowlock", "up", "-d", "--without", "kubelet,scheduler"),
        ("runai", "list", "jobs"),
        ("rowlock", "doctor"),
        ("rowlock", "image", "list"),
        ("rowlock", "build", "--help"),
        ("rowlock", "simulate", "--help"),
        ("rowlock", "scheduler", "replay", "nothing-here.json"),
        ("rowlock", "down", "--yes"),
    )
    for line in lines:
        subprocess.run([BIN / line[0], *line[1:]], env=cluster.env, cwd=planted, capture_output=True, timeout=200)
    was_run = tmp_path / "was-run"
    assert not was_run.exists(), f"imported from the current directory: {was_run.read_text()}"
