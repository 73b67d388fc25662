"""`rowlock doctor`: what this machine has, each with ok or warn, and the fix."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import NamedTuple

from rowlock.cli import client
from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import show, show_json, table


class Finding(NamedTuple):
    """`state` is ok, warn or bad; `fix` is "" when there is nothing to do."""

    what: str
    state: str
    found: str
    fix: str = ""


def doctor(line: CommandLine) -> int:
    directory = data_dir(line)
    findings = [
        python(),
        cpus(),
        kubectl(),
        torch(),
        gpus(),
        network(),
        containers(),
        disk_space(directory),
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
    version = f"{sys.version.split()[0]} ({sys.executable})"
    return Finding("python", "ok", version)


def cpus() -> Finding:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count < 2:
        return Finding("cpus", "warn", "1", "all ranks share one CPU: expect slow training")
    return Finding("cpus", "ok", str(count))


def kubectl() -> Finding:
    path = shutil.which("kubectl")
    if path is None:
        return Finding("kubectl", "warn", "not installed", "optional: `kubectl get pytorchjobs` shows the same jobs")
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
    no_gpu_hint = "no GPU found: try jobs with simulated GPUs, `rowlock up -d --simulated-gpus 1`"
    if shutil.which("nvidia-smi") is None:
        return Finding("gpus", "warn", "none (no NVIDIA driver)", no_gpu_hint)
    try:
        result = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return Finding("gpus", "bad", "nvidia-smi does not answer", "the driver hangs: see the kernel's log")
    if result.returncode:
        return Finding(
            "gpus", "bad", result.stdout.strip() or result.stderr.strip(), "the NVIDIA driver is broken: reinstall it"
        )
    cards = [card for card in result.stdout.splitlines() if card.strip()]
    return (
        Finding("gpus", "ok", f"{len(cards)}: {'; '.join(sorted(set(cards)))}")
        if cards
        else Finding("gpus", "warn", "none", no_gpu_hint)
    )


def network() -> Finding:
    """Whether pods can have a network of their own: an unprivileged user and network namespace."""
    fix = "pods share this machine's network; rowlock rewrites names and ports, nothing needs to be done"
    if not sys.platform.startswith("linux"):
        return Finding("pod network", "ok", f"rewrite ({sys.platform} has no namespaces)", fix)
    unshare = shutil.which("unshare")
    if unshare is None:
        return Finding("pod network", "warn", "unknown: `unshare` is not installed", "`rowlock up` finds out")
    result = subprocess.run([unshare, "--user", "--map-root-user", "--net", "true"], capture_output=True, check=False)
    if result.returncode:
        return Finding("pod network", "warn", "rewrite (this kernel does not allow user namespaces)", fix)
    return Finding("pod network", "ok", "namespaces: every pod has its own ports")


def containers() -> Finding:
    """Which container engine answers; without one pods are processes, and nothing is missing."""
    command = [sys.executable, "-P", "-m", "rowlock.kubelet.shim.engine_client"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    engine = result.stdout.strip()
    if result.returncode == 0:
        return Finding("containers", "ok", f"{engine}: images that it has or can pull run in containers")
    not_answering = "does not answer" in engine
    fix = (
        "start it, or join the group `docker` to get access; until then pods run as processes" if not_answering else ""
    )
    return Finding("containers", "warn" if not_answering else "ok", f"pods run as processes: {engine}", fix)


def disk_space(directory: str) -> Finding:
    existing = directory
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not os.access(existing, os.W_OK):
        return Finding(
            "data directory",
            "bad",
            f"{directory} is not writable",
            "choose another: --data-dir DIR or ROWLOCK_DATA_DIR",
        )
    free = shutil.disk_usage(existing).free / 2**30
    if free < 1:
        return Finding(
            "data directory",
            "bad",
            f"{directory}: {free:.1f} GiB free",
            "free some space: the server refuses writes when the disk is full",
        )
    return Finding("data directory", "ok", f"{directory} ({free:.0f} GiB free)")


def server(line: CommandLine, directory: str) -> Finding:
    server_json = client.running_server(directory)
    if server_json is None:
        last_server_json = client.read_server_json(directory)
        state = f"gone (pid {last_server_json.get('pid')} is not there)" if last_server_json else "not running"
        return Finding("server", "warn", state, f"start it: `{client.restart_command(last_server_json)}`")
    try:
        client.connect(line).get("/api/v1/clusters")
    except CommandError as refusal:
        return Finding(
            "server", "bad", refusal.message, f"its log may say why: {os.path.join(directory, 'server.log')}"
        )
    return Finding("server", "ok", f"{server_json['url']} (pid {server_json['pid']})")
