"""Walks of kubectl commands against the cluster as a user starts it, beside what a real Kubernetes answered.

`known.json` says which steps are known to differ (`differs`: they must) and which look at a moment (`varies`), each
with the answers that are accepted instead. Of `kubectl explain` the walks compare the structure, not the prose.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.end_to_end.cluster import REPO, make
from tests.evidence import WALKS
from tests.kubectl.__main__ import check
from tests.kubectl.steps import Result, Step, Walk
from tests.kubectl.variants import Variants

from rowlock import KUBERNETES

MINOR = KUBERNETES.rpartition(".")[0]
IMPATIENT = 1.0
"""Seconds for a step that waits for what is known not to come."""


@dataclass(frozen=True)
class Known:
    """Of one walk."""

    differs: Mapping[str, Variants]
    varies: Mapping[str, Variants]

    @classmethod
    def of(cls, walk: str) -> Known:
        given: dict[str, Any] = json.loads(Path(__file__).with_name("known.json").read_text())[walk]
        return cls(*({k: Variants.read(v) for k, v in given[part].items()} for part in ("differs", "varies")))

    def judge(self, step: Step, lines: list[str], found: Result) -> str:
        """What is wrong with a step that was played; "" for nothing."""
        head = f"{step.name}: kubectl {step.run}"
        if step.name in self.differs:
            if not lines:
                return f"{head}: this is as recorded now: take it out of known.json"
            return "" if self.differs[step.name].allow(step, found) else "\n    ".join([head, *lines])
        varies = self.varies.get(step.name)
        return "\n    ".join([head, *lines]) if lines and not (varies and varies.allow(step, found)) else ""


@dataclass(frozen=True)
class Outcome:
    """Of each step, what is wrong with it ("": nothing); and which are as recorded to the letter."""

    steps: dict[str, str] = field(default_factory=dict)
    same: int = 0

    @property
    def wrong(self) -> list[str]:
        return [sentence for sentence in self.steps.values() if sentence]


@cache
def kubectl() -> str:
    """A kubectl of the version that the walks were recorded with; "" when there is none."""
    told = os.environ.get("ROWLOCK_KUBECTL", "")
    candidates = [told] if told else [str(_cache() / "kubectl"), shutil.which("kubectl") or ""]
    return next((c for c in candidates if c and _client_version(c).startswith(f"v{MINOR}.")), "")


def _cache() -> Path:
    """Where `make real-cluster` leaves what it built."""
    where = [sys.executable, str(REPO / "scripts" / "real_cluster"), "where"]
    return Path(subprocess.run(where, capture_output=True, text=True, timeout=200).stdout.strip() or "nowhere")


def _client_version(program: str) -> str:
    try:
        told = subprocess.run(
            [program, "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=30
        )
        return str(json.loads(told.stdout)["clientVersion"]["gitVersion"])
    except (OSError, ValueError, KeyError):
        return ""


def missing() -> str:
    """Why the walks cannot be played here, in one sentence; "" when they can."""
    if not kubectl():
        return f"there is no kubectl {MINOR} (ROWLOCK_KUBECTL names one; `make real-cluster` builds one)"
    return ""


def play(name: str, folder: Path, engine: str = "") -> Outcome:
    """Start a server, walk, stop the server. `engine`: the socket of a container engine that has the walks' image."""
    folder.mkdir()
    cluster = make(folder / "data", folder)
    cluster.env |= {"DOCKER_HOST": f"unix://{engine}"} if engine else {}
    image = ["image", "list"] if engine else ["image", "add", "busybox:1", "--host"]
    try:
        cluster.up()
        cluster.run("rowlock", *image)
        known = Known.of(name)
        # What differs does so because pods are processes of this machine.
        return judged(name, folder / "data" / "kubeconfig", replace(known, differs={}) if engine else known)
    finally:
        cluster.run("rowlock", "down", "--yes", code=None)


def judged(name: str, kubeconfig: Path, known: Known) -> Outcome:
    """Play a walk against a server; what is known of a step decides what it may answer."""
    walk = Walk.load(WALKS / f"{name}.golden.json")
    strangers = {*known.differs, *known.varies} - {step.name for step in walk.steps}
    assert not strangers, f"known.json names steps that the walk {name} does not have: {sorted(strangers)}"
    # What is known not to come is not waited for.
    steps = [replace(s, within=IMPATIENT) if s.until and s.name in known.differs else s for s in walk.steps]
    outcome, same = {}, 0
    for step, lines, found in check(replace(walk, steps=steps), kubeconfig, kubectl()):
        outcome[step.name] = known.judge(step, lines, found)
        same += not lines
    assert list(outcome) == [step.name for step in walk.steps]
    return Outcome(outcome, same)
