"""Walks of kubectl commands against the cluster as a user starts it, beside what a real Kubernetes answered.

A walk is played by the recorder's own checker, against a server of its own; `known.json` says which steps are known
to differ (`differs`) and which may go either way because they look at a moment (`maybe`), each with its reason. Of
`kubectl explain` the walks compare the structure (kinds, fields, types), not the prose.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.end_to_end.cluster import BIN, REPO, make
from tests.evidence import BESIDE, WALKS

from rowlock import KUBERNETES

CHECKER = BESIDE / "tools" / "kubectl_walk.py"
GOLDEN = WALKS
MINOR = KUBERNETES.rpartition(".")[0]
KNOWN: dict[str, dict[str, dict[str, str]]] = json.loads(Path(__file__).with_name("known.json").read_text())
IMPATIENT = 1
"""Seconds for a step that waits for what is known not to come."""


@dataclass(frozen=True)
class Outcome:
    """What became of the steps: the checker's difference of each that failed, "" of each that passed."""

    steps: dict[str, str] = field(default_factory=dict)
    trouble: str = ""

    @property
    def failed(self) -> set[str]:
        return {name for name, difference in self.steps.items() if difference}


@cache
def kubectl() -> str:
    """A kubectl of the version that the walks were recorded with; "" when there is none."""
    told = os.environ.get("ROWLOCK_KUBECTL", "")
    candidates = [told] if told else [str(_cache() / "kubectl"), shutil.which("kubectl") or ""]
    return next((c for c in candidates if c and _client_version(c).startswith(f"v{MINOR}.")), "")


def _cache() -> Path:
    """Where `make real-cluster` leaves what it built."""
    where = [sys.executable, str(REPO / "scripts" / "real_cluster"), "where"]
    return Path(subprocess.run(where, capture_output=True, text=True, timeout=30).stdout.strip() or "nowhere")


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
    if not CHECKER.exists():
        return "the runner of the recorded walks is not beside this repository"
    if not kubectl():
        return f"there is no kubectl {MINOR} (ROWLOCK_KUBECTL names one; `make real-cluster` builds one)"
    return ""


def play(name: str, folder: Path, engine: str = "") -> Outcome:
    """Start a server, walk, stop the server. `engine`: the socket of a container engine that has the walks' image."""
    folder.mkdir()
    cluster = make(folder / "data", folder)
    cluster.env |= {"DOCKER_HOST": f"unix://{engine}"} if engine else {}
    image = ["image", "list"] if engine else ["image", "add", "busybox:1", "--host"]
    rowlock = str(BIN / "rowlock")
    try:
        for command in (["up", "-d"], image):
            done = subprocess.run([rowlock, *command], env=cluster.env, capture_output=True, text=True, timeout=120)
            if done.returncode:
                return Outcome(trouble=f"rowlock {' '.join(command)}: {done.stdout}{done.stderr}")
        golden = folder / f"{name}.golden.json"
        golden.write_text(json.dumps(_fitted(name)))
        argv = [sys.executable, str(CHECKER), "check", str(golden), "--kubeconfig", str(folder / "data" / "kubeconfig")]
        told = subprocess.run([*argv, "--kubectl", kubectl()], env=cluster.env, capture_output=True, text=True)
        return _read(told.stdout, told.stderr)
    finally:
        subprocess.run([rowlock, "down", "--yes"], env=cluster.env, capture_output=True, timeout=60)


def _fitted(name: str) -> Any:
    """The recorded walk; what is known not to come is not waited for."""
    walk = json.loads((GOLDEN / f"{name}.golden.json").read_text())
    for step in walk["steps"]:
        if step["name"] in KNOWN[name]["differs"] and "until" in step:
            step["within"] = IMPATIENT
    return walk


def _read(text: str, errors: str) -> Outcome:
    steps: dict[str, str] = {}
    current = ""
    for line in text.splitlines():
        if passed := re.fullmatch(r"ok (\S+)", line):
            steps[passed[1]] = ""
        elif failed := re.match(r"FAIL (\S+): ", line):
            current = failed[1]
            steps[current] = line
        elif line.startswith("    ") and current:
            steps[current] += "\n" + line
    ended = re.search(r"^\d+ passed, \d+ failed$", text, re.MULTILINE)
    return Outcome(steps, "" if ended else f"the walk broke off: {text[-500:]}{errors[-2000:]}")
