"""Two real control planes that are started in one moment, as two processes of a test run start theirs."""

from __future__ import annotations

import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.subjects import REPO


def test_who_starts_beside_another_looks_for_ports_when_those_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(REPO / "scripts" / "real_cluster"))
    for name in ("control_plane", "identities", "processes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    script: Any = importlib.import_module("control_plane")
    taken: set[int] = set()
    both_wait = threading.Barrier(2)

    def find_ports(count: int) -> int:
        return next(first for first in range(21000, 30000, count) if first not in taken)

    def listen(plane: Any) -> None:
        threading.Event().wait(0.05)  # a program takes a while until it listens
        taken.add(plane.port)

    monkeypatch.setattr(script, "_free_ports", find_ports)
    monkeypatch.setattr(script, "_etcd", lambda plane: None)
    monkeypatch.setattr(script, "_apiserver", listen)
    monkeypatch.setattr(script, "write_identities", lambda place: both_wait.wait(200))

    def start(name: str) -> int:
        plane = script.Plane(tmp_path / name, tmp_path, 0)
        script.start(plane)
        return int(plane.port)

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(start, ("one", "other"))) == [21000, 21010]
