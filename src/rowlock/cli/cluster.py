"""`up`, `down`, `status`, `kubeconfig`, `version`: the server's life, as seen from outside it.

`up` starts `python -m rowlock.serve` with the flags it was given and, detached, returns when the server answers.
`server.json` says with which flags a server runs, so that a second `up` knows whether it asks for the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

from rowlock.cli import client
from rowlock.cli.grammar import Line, Refused
from rowlock.cli.output import amount, ask, seconds, show, show_json, size, table, tell
from rowlock.cli.place import data_dir, place_flag, prepare, project

SETTINGS = (
    "nodes",
    "gpus_per_node",
    "simulated_gpus",
    "cpus_per_node",
    "port",
    "bind",
    "users",
    "tls_san",
    "network",
    "runtime",
    "warm_start",
    "without",
    "parity",
    "pretend_nodes",
    "half_life",
    "log_limit",
    "keep_checkpoints",
)
_READY = 30.0
"""Seconds that a detached server may take until it answers."""
_STOPPING = 40.0
"""Seconds that `down` waits for jobs to stop, all together."""
_ENDED = ("Stopped", "Completed", "Failed", "Deleting")
_LOOK = 0.02


def up(line: Line) -> int:
    directory = data_dir(line)
    wanted = {name: getattr(line, name) for name in SETTINGS if name in line.given}
    _sane(line)
    if line.half_life is not None:
        wanted["half_life"] = seconds(line.half_life, "--half-life")
    if "log_limit" in wanted:
        wanted["log_limit"] = size(line.log_limit, "--log-limit", least="1Mi")
    if "keep_checkpoints" in wanted:
        wanted["keep_checkpoints"] = seconds(line.keep_checkpoints, "--keep-checkpoints")
    if "users" in wanted:
        wanted["users"] = os.path.abspath(os.path.expanduser(line.users))
    found = client.running(directory)
    if found:
        return _already(line, found, wanted)
    prepare(directory)
    argv = serve_argv(directory, wanted)
    if not line.detach:
        sys.stdout.flush()
        os.execv(argv[0], argv)
    return _report(line, start(directory, argv))


def _sane(line: Line) -> None:
    for name in ("nodes", "cpus_per_node", "pretend_nodes", "port"):
        value = getattr(line, name)
        if value is not None and value < 1:
            raise Refused(f"--{name.replace('_', '-')} must be at least 1, but is {value}", 2)
    for name in ("gpus_per_node", "simulated_gpus"):
        if (getattr(line, name) or 0) < 0:
            raise Refused(f"--{name.replace('_', '-')} must be at least 0, but is {getattr(line, name)}", 2)
    if line.port is not None and line.port > 65535:
        raise Refused(f"--port must be at most 65535, but is {line.port}", 2)
    if "gpus_per_node" in line.given and "simulated_gpus" in line.given:
        raise Refused("--gpus-per-node counts real GPUs and --simulated-gpus pretend ones: give one of them", 2)
    parts = set(filter(None, (line.without or "").split(",")))
    if unknown := parts - {"kubelet", "scheduler"}:
        raise Refused(f"--without knows kubelet and scheduler, not {', '.join(sorted(unknown))}", 2)


def serve_argv(directory: str, wanted: dict[str, Any]) -> list[str]:
    """The server's command line."""
    argv = [sys.executable, "-m", "rowlock.serve", "--data-dir", directory]
    for name, value in wanted.items():
        argv += [f"--{name.replace('_', '-')}", str(value)]
    return argv


def start(directory: str, argv: list[str]) -> dict[str, Any]:
    """Start the server in a session of its own; its server.json when it answers. Raises Refused with its last words."""
    log = os.path.join(directory, "server.log")
    with open(log, "ab") as output:
        began = output.tell()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd=directory
        )
    deadline = time.monotonic() + _READY
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Refused(_last_words(log, began) or f"the server ended at once; {log} may say why")
        found = client.state(directory)
        if found and found.get("pid") == process.pid and _answers(str(found["url"])):
            return found
        time.sleep(_LOOK)
    process.terminate()
    raise Refused(f"the server did not answer within {_READY:.0f} s and was stopped; {log} may say why")


def _answers(url: str) -> bool:
    import socket
    import urllib.parse

    parts = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 443), 1).close()
    except OSError:
        return False
    return True


def _last_words(log: str, began: int) -> str:
    """The last line that the server wrote in this start: its own sentence."""
    with open(log, "rb") as file:
        file.seek(began)
        lines = [text for text in file.read().decode(errors="replace").splitlines() if text.strip()]
    return lines[-1].removeprefix("rowlock: ").removeprefix("error: ") if lines else ""


def _already(line: Line, found: dict[str, Any], wanted: dict[str, Any]) -> int:
    same(data_dir(line), found, wanted)
    return _report(line, found, "already running")


def same(directory: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """A server is there: the same settings are fine, others are refused. Raises Refused."""
    before = found.get("flags") or {}
    differs = [name for name, value in wanted.items() if before.get(name) != value]
    if differs:
        flags = ", ".join(f"--{name.replace('_', '-')} {wanted[name]}" for name in differs)
        raise Refused(
            f"a server is running for {directory} already (pid {found['pid']}), but without {flags}. "
            f"Stop it first: `rowlock down{place_flag(directory)}`"
        )


def _report(line: Line, found: dict[str, Any], word: str = "ready") -> int:
    if line.json:
        show_json(found)
        return 0
    show(f"The cluster is {word}: {found['url']} (pid {found['pid']})")
    show(f"kubectl:   export KUBECONFIG={found.get('kubeconfig') or os.path.join(data_dir(line), 'kubeconfig')}")
    if found.get("others"):
        show(f"For others: {' '.join(found['others'])} (`rowlock kubeconfig --user NAME` for each)")
    return 0


# ---------------------------------------------------------------- down


def down(line: Line) -> int:
    directory = data_dir(line)
    found = client.running(directory)
    if found is None:
        show(f"No server is running for {directory}.")
        return 0
    if line.keep_jobs and line.stop_jobs:
        raise Refused("--keep-jobs and --stop-jobs exclude each other", 2)
    limit = seconds(line.timeout, "--timeout")
    busy = [] if line.keep_jobs else _busy(line)
    if busy:
        _agree(line, busy)
        left = _stop_jobs(line, busy, time.monotonic() + min(limit, _STOPPING))
        busy = [w for w in busy if w not in left]
        if left:
            tell(f"Nobody stopped {_named(left)}: what runs of it goes on. The next `rowlock up` finds it")
    if not line.keep_jobs:
        _tell_of_bare_pods(line)
    if line.server is not None:
        line.server.close()  # a server waits for its connections before it ends
    pid = int(found["pid"])
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + limit
    while client.alive(found):
        if time.monotonic() > deadline:
            raise Refused(f"the server (pid {pid}) did not end within {line.timeout}; `kill -9 {pid}` ends it")
        _reap(pid)
        time.sleep(_LOOK)
    stopped = f"; {len(busy)} unfinished {'jobs were' if len(busy) != 1 else 'job was'} stopped" if busy else ""
    kept = "; running pods go on, the next `rowlock up` finds them" if line.keep_jobs else ""
    show(f"The cluster is down{stopped}{kept}.")
    if busy:
        where = "" if busy[0]["projectName"] == project(line) else f" -p {busy[0]['projectName']}"
        resume = f"rowlock resume {busy[0]['name']}{where}{place_flag(directory)}"
        show(f"To go on with a stopped job: `{client.again(found)}`, then `{resume}`")
    return 0


def _reap(pid: int) -> None:
    """When we are its parent (tests), take the exit code so that the process is gone."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _busy(line: Line) -> list[dict[str, Any]]:
    """Jobs that have pods, or will; a server that does not answer has none to tell of."""
    try:
        server = client.connect(line)
        found = client.pages(server, "/api/v1/workloads", "workloads")
    except Refused as refusal:
        tell(f"The server could not be asked about its jobs: {refusal.message}")
        return []
    return [w for w in found if w["phase"] not in ("Completed", "Failed", "Stopped", "Deleting")]


def _tell_of_bare_pods(line: Line) -> None:
    """Pods without a controller cannot be suspended and are not ours to delete: they go on, and that is said."""
    try:
        found = client.connect(line).get("/api/v1/pods")["items"]
    except Refused:
        return  # `_busy` has said that the server does not answer
    bare = [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in found
        if pod["spec"].get("nodeName")
        and not pod["metadata"].get("ownerReferences")
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]
    if bare:
        which, verb = ("pods", "go") if len(bare) != 1 else ("pod", "goes")
        tell(
            f"{len(bare)} {which} of no job {verb} on ({_some(bare)}): `kubectl delete pod` ends what the next `rowlock up` finds"
        )


def _agree(line: Line, busy: list[dict[str, Any]]) -> None:
    if line.yes or line.stop_jobs:
        return
    count = _named(busy)
    if not sys.stdin.isatty():
        raise Refused(f"{count}: stop with --yes, or leave pods running with --keep-jobs")
    if ask(f"{count} will be stopped. Go on? [y/N] ") not in ("y", "yes"):
        raise Refused("Nothing was stopped.")


def _named(busy: list[dict[str, Any]]) -> str:
    return f"{len(busy)} unfinished {'jobs' if len(busy) != 1 else 'job'} ({_some([w['name'] for w in busy])})"


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" …" if len(names) > 5 else "")


def _stop_jobs(line: Line, busy: list[dict[str, Any]], deadline: float) -> list[dict[str, Any]]:
    """Suspend every unfinished job and wait until its pods are gone: `rowlock resume` starts it again. Those whose pods
    are not gone at the deadline: somebody else manages them, or nobody ends their pods."""
    server = client.connect(line)
    for workload in busy:
        try:
            server.post(f"/api/v1/workloads/distributed/{workload['id']}/suspend")
        except client.ServerRefused as refusal:
            if refusal.status not in (404, 409):
                raise
    still = []
    for workload in busy:
        path, left = f"/api/v1/workloads/{workload['id']}/wait", max(0.0, deadline - time.monotonic())
        try:
            found = server.get(path, **{"for": ",".join(_ENDED), "timeout": round(left, 3)})
        except client.ServerRefused:
            continue  # it has been deleted meanwhile
        if found["phase"] not in (*_ENDED, "Deleted"):
            still.append(workload)
    return still


# ---------------------------------------------------------------- status


def status(line: Line) -> int:
    directory = data_dir(line)
    found = client.running(directory)
    if found is None:
        old = client.state(directory)
        body: dict[str, Any] = {"running": False, "dataDir": directory, "pid": None, "url": None, "kubeconfig": None}
        if line.json:
            show_json(body)
        elif old:
            show(f"The server of {directory} (pid {old.get('pid')}) is gone. Start it again: `{client.again(old)}`")
        else:
            show(f"No server is running for {directory}. Start one: `rowlock up -d{place_flag(directory)}`")
        return 1
    server = client.connect(line)
    nodes = server.get("/api/v1/nodes")["items"]
    workloads = client.pages(server, "/api/v1/workloads", "workloads")
    phases: dict[str, int] = {}
    for workload in workloads:
        phases[workload["phase"]] = phases.get(workload["phase"], 0) + 1
    if line.json:
        shown = [{"name": n["metadata"]["name"], "allocatable": n["status"].get("allocatable", {})} for n in nodes]
        show_json({"running": True, "dataDir": directory, **found, "nodes": shown, "workloads": phases})
        return 0
    show(f"Server:      {found['url']} (pid {found['pid']}, version {found.get('version', '?')})")
    show(f"Data:        {directory}")
    show(f"Kubeconfig:  {found.get('kubeconfig', '')}")
    if found.get("others"):
        show(f"For others:  {' '.join(found['others'])}")
    show("Workloads:   " + (", ".join(f"{n} {p}" for p, n in sorted(phases.items())) or "none"))
    show("")
    show(table(("NODE", "STATUS", "CPUS", "MEMORY", "GPUS", "NETWORK"), [_node(n) for n in nodes]))
    if any(node.get("spec", {}).get("unschedulable") for node in nodes):
        show(_CLOSED)
    return 0


_CLOSED = """
A closed node takes no new pods: `kubectl cordon` closed it, or it is of an earlier `rowlock up` with other flags and pods
are still on it. The next start without them removes it (`rowlock delete JOB` removes a job's pods)."""


def _node(node: dict[str, Any]) -> tuple[str, ...]:
    have = node["status"].get("allocatable") or {}
    notes = node["metadata"].get("annotations") or {}
    gpus = str(have.get("nvidia.com/gpu", "0"))
    simulated = " (simulated)" if notes.get("rowlock.dev/simulated-gpus") == "true" and gpus != "0" else ""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return (
        node["metadata"]["name"],
        ("Ready" if ready else "NotReady") + (", closed" if node.get("spec", {}).get("unschedulable") else ""),
        str(have.get("cpu", "")),
        amount(str(have.get("memory", ""))),
        gpus + simulated,
        notes.get("rowlock.dev/network", ""),
    )


def kubeconfig(line: Line) -> int:
    directory = data_dir(line)
    if line.user:
        show(_kubeconfig_of(line, directory))
        return 0
    path = str((client.state(directory) or {}).get("kubeconfig") or os.path.join(directory, "kubeconfig"))
    if not os.path.exists(path):
        raise Refused(f"there is no kubeconfig in {directory} yet: it is written by the first `rowlock up`")
    if line.path:
        show(path)
        return 0
    with open(path, encoding="utf-8") as file:
        show(file.read())
    return 0


def _kubeconfig_of(line: Line, directory: str) -> str:
    """For somebody else's machine: with the authority and his token in it."""
    import base64
    import csv
    import json

    found = client.running(directory)
    users = str(((found or {}).get("flags") or {}).get("users") or "")
    if found is None or users in ("", "None"):
        why = "no server runs" if found is None else "the server was started without --users FILE"
        raise Refused(f"there are no users to print a kubeconfig for: {why}")
    try:
        with open(users, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) > 2 and not row[0].lstrip().startswith("#")]
            tokens = {row[1].strip(): row[0].strip() for row in rows}
        with open(os.path.join(directory, "ca.crt"), "rb") as file:
            authority = base64.b64encode(file.read()).decode()
    except OSError as error:
        raise Refused(f"{error.filename} cannot be read: {error.strerror}") from None
    if line.user not in tokens:
        raise Refused(f"{users} has no user {line.user}; there are: {', '.join(sorted(tokens))}")
    url = next(iter(found.get("others") or ()), found["url"])
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rowlock",
        "clusters": [{"name": "rowlock", "cluster": {"server": url, "certificate-authority-data": authority}}],
        "contexts": [
            {"name": "rowlock", "context": {"cluster": "rowlock", "user": line.user, "namespace": "runai-default"}}
        ],
        "users": [{"name": line.user, "user": {"token": tokens[line.user]}}],
    }
    return json.dumps(made, indent=2)


def version(line: Line) -> int:
    from rowlock import __version__

    if line.json:
        show_json({"version": __version__})
    else:
        show(f"rowlock {__version__}")
    return 0
