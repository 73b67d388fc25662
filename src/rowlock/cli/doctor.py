"""`rowlock doctor`: what this machine has, each with ok or warn, and the fix."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import NamedTuple

from rowlock.cli import client
from rowlock.cli.grammar import Line, Refused
from rowlock.cli.output import show, show_json, table
from rowlock.cli.place import data_dir


class Finding(NamedTuple):
    """`state` is ok, warn or bad; `fix` is "" when there is nothing to do."""

    what: str
    state: str
    found: str
    fix: str = ""


def doctor(line: Line) -> int:
    directory = data_dir(line)
    findings = [
        python(),
        cpus(),
        kubectl(),
        torch(),
        gpus(),
        network(),
        containers(),
        space(directory),
        server(line, directory),
    ]
    if line.json:
        show_json([finding._asdict() for finding in findings])
    else:
        show(table(("", "WHAT", "FOUND"), [(f.state, f.what, f.found) for f in findings]))
        for finding in findings:
            if finding.fix:
                show(f"\n{finding.what}: {finding.fix}")
    return 1 if any(f.state == "bad" for f in findings) else 0


def python() -> Finding:
    found = f"{sys.version.split()[0]} ({sys.executable})"
    return Finding("python", "ok", found)


def cpus() -> Finding:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count < 2:
        return Finding("cpus", "warn", "1", "ranks will take turns on one CPU: expect slow training")
    return Finding("cpus", "ok", str(count))


def kubectl() -> Finding:
    path = shutil.which("kubectl")
    if path is None:
        return Finding(
            "kubectl", "warn", "not installed", "optional: with it the same jobs answer to `kubectl get pytorchjobs`"
        )
    return Finding("kubectl", "ok", path)


def torch() -> Finding:
    """In this Python: what `host` images run unless they name another."""
    import importlib.metadata

    try:
        return Finding("torch", "ok", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        fix = f"for PyTorch jobs: `{os.path.basename(sys.executable)} -m pip install torch` in this environment"
        return Finding("torch", "warn", "not in this environment", fix)


def gpus() -> Finding:
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    none = "no GPU here: rehearse with `rowlock up -d --simulated-gpus 1`"
    if shutil.which("nvidia-smi") is None:
        return Finding("gpus", "warn", "none (no NVIDIA driver)", none)
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return Finding("gpus", "bad", "nvidia-smi does not answer", "the driver hangs: look at the kernel's log")
    if done.returncode:
        return Finding(
            "gpus", "bad", done.stdout.strip() or done.stderr.strip(), "the NVIDIA driver is broken: reinstall it"
        )
    cards = [card for card in done.stdout.splitlines() if card.strip()]
    return (
        Finding("gpus", "ok", f"{len(cards)}: {'; '.join(sorted(set(cards)))}")
        if cards
        else Finding("gpus", "warn", "none", none)
    )


def network() -> Finding:
    """Whether pods can have a network of their own: an unprivileged user and network namespace."""
    fix = "pods share this machine's network; rowlock rewrites names and ports, nothing needs to be done"
    if not sys.platform.startswith("linux"):
        return Finding("pod network", "ok", f"rewrite ({sys.platform} has no namespaces)", fix)
    unshare = shutil.which("unshare")
    if unshare is None:
        return Finding(
            "pod network", "warn", "unknown: `unshare` is not installed", "rowlock finds out by itself at `up`"
        )
    done = subprocess.run([unshare, "--user", "--map-root-user", "--net", "true"], capture_output=True, check=False)
    if done.returncode:
        return Finding("pod network", "warn", "rewrite (this kernel does not give user namespaces)", fix)
    return Finding("pod network", "ok", "namespaces: every pod has its own ports")


def containers() -> Finding:
    """Which container engine answers; without one pods are processes, and nothing is missing."""
    words = [sys.executable, "-m", "rowlock.cluster.node.engine"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = done.stdout.strip()
    if done.returncode == 0:
        return Finding("containers", "ok", f"{found}: images that it has or can pull run in containers")
    refused = "does not answer" in found
    fix = "start it, or join its group (`docker`) to be let in; until then pods run as processes" if refused else ""
    return Finding("containers", "warn" if refused else "ok", f"pods run as processes: {found}", fix)


def space(directory: str) -> Finding:
    place = directory
    while not os.path.exists(place):
        place = os.path.dirname(place)
    if not os.access(place, os.W_OK):
        return Finding(
            "data directory",
            "bad",
            f"{directory} is not writable",
            "choose another: --data-dir DIR or ROWLOCK_DATA_DIR",
        )
    free = shutil.disk_usage(place).free / 2**30
    if free < 1:
        return Finding(
            "data directory", "bad", f"{directory}: {free:.1f} GiB free", "free some space: a full disk refuses writes"
        )
    return Finding("data directory", "ok", f"{directory} ({free:.0f} GiB free)")


def server(line: Line, directory: str) -> Finding:
    found = client.running(directory)
    if found is None:
        dead = client.state(directory)
        word = f"gone (pid {dead.get('pid')} is not there)" if dead else "not running"
        return Finding("server", "warn", word, f"start it: `{client.again(dead)}`")
    try:
        client.connect(line).get("/api/v1/clusters")
    except Refused as refusal:
        return Finding(
            "server", "bad", refusal.message, f"its log may say why: {os.path.join(directory, 'server.log')}"
        )
    return Finding("server", "ok", f"{found['url']} (pid {found['pid']})")
