"""`rowlock doctor`: checks this machine, or a real cluster; each finding is ok, warn or bad, with a fix."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from typing import NamedTuple

from rowlock.cli import client
from rowlock.cli.context import data_dir, data_dir_flag
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import show, show_json, table
from rowlock.cli.server_json import read_server_json, running_server
from rowlock.cli.start.settings import restart_command

_FEW_OPEN_FILES = 4096
"""Connections may use three quarters of the descriptors; the last quarter is for one pidfd for each of a node's 1,000 pods."""
_LITTLE_SHARED_MEMORY = 512 << 20
"""Bytes. Docker gives a container 64 MiB, which the first DataLoader with a few workers fills."""


class Finding(NamedTuple):
    """`state` is ok, warn or bad; `fix` is "" when there is nothing to do."""

    what: str
    state: str
    found: str
    fix: str = ""


def doctor(line: CommandLine) -> int:
    """Check this machine, or with --kubeconfig a real cluster. The exit code is 1 if a finding is bad."""
    findings = _cluster_findings(line) if line.kubeconfig else _machine_findings(line)
    if line.json:
        show_json([finding._asdict() for finding in findings])
    else:
        show(table(("", "WHAT", "FOUND"), [(f.state, f.what, f.found) for f in findings]))
        for finding in findings:
            if finding.fix:
                show(f"\n{finding.what}: {finding.fix}")
    return 1 if any(f.state == "bad" for f in findings) else 0


def _cluster_findings(line: CommandLine) -> list[Finding]:
    """Findings about a real cluster, from a separate program, because the command line talks only to rowlock's server."""
    argv = [sys.executable, "-P", "-m", "rowlock.kube.doctor", "--kubeconfig", os.path.expanduser(line.kubeconfig)]
    argv += [*(("--context", line.context) if line.context else ()), "--scheduler", line.scheduler]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CommandError(result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "no answer", 1)
    return [Finding(**finding) for finding in json.loads(result.stdout)]


def _machine_findings(line: CommandLine) -> list[Finding]:
    if line.context or "scheduler" in line.given_flags:
        flag = "--context" if line.context else "--scheduler"
        raise CommandError(f"{flag} needs --kubeconfig FILE: without it this machine is looked at", 2)
    directory = data_dir(line)
    return [
        python(),
        cpus(),
        kubectl(),
        torch(),
        gpus(),
        network(),
        processes(),
        own_limits(),
        process_limits(),
        containers(),
        open_files(),
        shared_memory(),
        disk_space(directory),
        server(line, directory),
    ]


def python() -> Finding:
    """The interpreter that runs the ranks."""
    version = f"{sys.version.split()[0]} ({sys.executable})"
    return Finding("python", "ok", version)


def cpus() -> Finding:
    """How many CPUs jobs can ask for."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count < 2:
        return Finding("cpus", "warn", "1", "all ranks share one CPU: expect slow training")
    return Finding("cpus", "ok", str(count))


def kubectl() -> Finding:
    """Whether there is a kubectl, and which."""
    path = shutil.which("kubectl")
    if path is None:
        return Finding("kubectl", "warn", "not installed", "optional: `kubectl get pytorchjobs` shows the same jobs")
    return Finding("kubectl", "ok", path)


def torch() -> Finding:
    """torch in this Python environment, which pods with a host image use by default."""
    import importlib.metadata

    try:
        return Finding("torch", "ok", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        fix = f"for PyTorch jobs: `{os.path.basename(sys.executable)} -m pip install torch` in this environment"
        return Finding("torch", "warn", "not in this environment", fix)


def gpus() -> Finding:
    """The GPUs of this machine, and why there may be none."""
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


def processes() -> Finding:
    """Whether pods have processes, IPC and /dev/shm of their own: namespaces, and the mounts in them."""
    fix = "pods see each other's processes, shared memory and semaphores: give names to what they share"
    unshare = shutil.which("unshare")
    if not sys.platform.startswith("linux") or unshare is None:
        return Finding("pod processes", "warn", "unknown: `unshare` is not installed here", "`rowlock up` finds out")
    flags = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = [unshare, *flags, "--pid", "--ipc", "--mount", "--fork", "--mount-proc", "true"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return Finding("pod processes", "warn", f"shared ({_refusal(result.stderr)})", fix)
    return Finding("pod processes", "ok", "namespaces: every pod has its own processes, IPC and /dev/shm")


def _refusal(said: str) -> str:
    """Why `unshare` made no namespace. At a limit of them the kernel says "No space left on device", which sends people to their disks."""
    if "unshare failed" in said and os.strerror(errno.ENOSPC) in said:
        return "the limit of namespaces is reached (`sysctl -a | grep namespaces`)"
    return said.strip()[:200]


def own_limits() -> Finding:
    """Whether containers see their own limits in /sys/fs/cgroup, i.e. a control group can be mounted there in a namespace."""
    version2 = os.path.exists(f"{_CGROUPS}/cgroup.controllers")
    place, unshare = _CGROUPS if version2 else f"{_CGROUPS}/cpu", shutil.which("unshare")
    if not os.access(place, os.W_OK):
        fix = "limits of memory are kept by looking, those of CPUs count for the scheduler alone"
        return Finding("pod limits", "ok", f"no control groups of its own ({place} cannot be written)", fix)
    if unshare is None:
        return Finding("pod limits", "warn", "unknown: `unshare` is not installed here", "`rowlock up` finds out")
    command = [unshare, "--mount", "mount", "--bind", place, place]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        fix = "limits are kept all the same; programs that size themselves by /sys/fs/cgroup need their limit in a flag"
        text = f"kept, but /sys/fs/cgroup shows the machine's ({_refusal(result.stderr)})"
        return Finding("pod limits", "warn", text, fix)
    return Finding("pod limits", "ok", f"control groups, version {2 if version2 else 1}: a container sees its own")


def process_limits() -> Finding:
    """Whether `up --pids-limit` can be enforced, i.e. a control group with the pids controller can be created."""
    version2 = os.path.exists(f"{_CGROUPS}/cgroup.controllers")
    place = _CGROUPS if version2 else f"{_CGROUPS}/pids"
    has_controller = not version2
    with contextlib.suppress(OSError), open(f"{_CGROUPS}/cgroup.controllers") as file:
        has_controller = "pids" in file.read().split()
    if has_controller and os.access(place, os.W_OK):
        text = "`rowlock up --pids-limit N` limits the processes and threads of each container; without it a program can take all"
        return Finding("process limits", "ok", text)
    fix = "a program that forks without end takes all processes: limit the server and its pods together (`ulimit -u`, TasksMax= of a systemd unit)"
    reason = f"{place} cannot be written" if has_controller else "this machine's control groups have no controller pids"
    return Finding("process limits", "warn", f"--pids-limit cannot be kept: {reason}", fix)


_CGROUPS = "/sys/fs/cgroup"


def containers() -> Finding:
    """Which container engine answers; without one, pods run as processes, which is fine."""
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


def open_files() -> Finding:
    """The hard limit of open files (RLIMIT_NOFILE, `ulimit -Hn`): the server raises its soft limit to it, up to 65536."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return Finding("open files", "ok", "no limit")
    if hard >= _FEW_OPEN_FILES:
        return Finding("open files", "ok", f"up to {hard} a process")
    fix = (
        f"many pods and clients need more: raise it to {_FEW_OPEN_FILES} or above before `rowlock up`"
        " (LimitNOFILE= of a systemd unit, `nofile` in /etc/security/limits.conf, `docker run --ulimit nofile=…`)"
    )
    return Finding("open files", "warn", f"at most {hard} a process", fix)


def shared_memory(path: str = "/dev/shm") -> Finding:
    """Free bytes of the tmpfs through which DataLoader workers pass tensors, and NCCL passes data between ranks."""
    try:
        free = shutil.disk_usage(path).free
    except OSError as error:
        if not sys.platform.startswith("linux"):
            return Finding("shared memory", "ok", f"no {path} ({sys.platform} needs none)")
        fix = f"DataLoader workers and NCCL need it: `mount -t tmpfs shm {path}`"
        return Finding("shared memory", "warn", f"{path}: {error.strerror}", fix)
    found = f"{path} ({free / 2**30:.1f} GiB free)"
    if free < _LITTLE_SHARED_MEMORY:
        fix = (
            "DataLoader workers and NCCL die of SIGBUS when it is full: remove what others left there, or enlarge it"
            f" (`mount -o remount,size=8G {path}`; in a container `docker run --shm-size=8g`)"
        )
        return Finding("shared memory", "warn", found, fix)
    return Finding("shared memory", "ok", found)


def disk_space(directory: str) -> Finding:
    """Whether the data directory is writable and has space for logs, images and checkpoints."""
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
    usage = shutil.disk_usage(existing)
    if not os.path.isdir(existing) or usage.total == 0:
        reason = f"{existing} holds no files" if os.path.isdir(existing) else f"{existing} is a file"
        return Finding(
            "data directory", "bad", f"{directory}: {reason}", "choose another: --data-dir DIR or ROWLOCK_DATA_DIR"
        )
    free = usage.free / 2**30
    if free < 1:
        return Finding(
            "data directory",
            "bad",
            f"{directory}: {free:.1f} GiB free",
            "free some space: the server refuses writes when the disk is full",
        )
    return Finding("data directory", "ok", f"{directory} ({free:.0f} GiB free)")


def server(line: CommandLine, directory: str) -> Finding:
    """Whether a server runs on the data directory, and answers."""
    server_json = running_server(directory)
    if server_json is None:
        last_server_json = read_server_json(directory)
        state = f"gone (pid {last_server_json.get('pid')} is not there)" if last_server_json else "not running"
        start = restart_command(last_server_json) if last_server_json else f"rowlock up -d{data_dir_flag(directory)}"
        return Finding("server", "warn", state, f"start it: `{start}`")
    try:
        client.connect(line).get("/api/v1/clusters")
    except CommandError as refusal:
        return Finding(
            "server", "bad", refusal.message, f"its log may say why: {os.path.join(directory, 'server.log')}"
        )
    return Finding("server", "ok", f"{server_json['url']} (pid {server_json['pid']})")
