"""`up`, `status` and `version`: start a server, and show its state.

`up` starts `python -m rowlock.serve` with the flags it was given and, detached, returns when the server answers.
`server.json` records the flags of a running server, so that a second `up` can check that its flags are the same.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import Any

from rowlock.cli import client, system_server
from rowlock.cli.context import data_dir, data_dir_flag, named_data_dir, prepare_data_dir
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.node_usage import has_simulated_gpus
from rowlock.cli.output import format_memory, parse_time, show, show_json, show_result, table, tell
from rowlock.cli.server_json import describe_copy, read_server_json, running_server
from rowlock.cli.start.process import start_server
from rowlock.cli.start.settings import check_same_settings, given_settings, next_start, restart_command, serve_argv

_SYSTEM_DATA_DIR = "/var/lib/rowlock"


def up(line: CommandLine) -> int:
    if line.system and not named_data_dir(line):
        line.set_values(data_dir=_SYSTEM_DATA_DIR)
    directory = data_dir(line)
    settings = given_settings(line)
    if line.unit and not line.system:
        raise CommandError("--unit prints how systemd starts the server of --system: the two go together", 2)
    if line.unit and line.accept_loss:
        raise CommandError("--accept-loss is for one start, and --unit is for all: leave one of them out", 2)
    if line.system:
        settings["system"] = system_server.check_flags(line)
    if line.unit:
        show(system_server.systemd_unit(serve_argv(directory, settings)))
        return 0
    server_json = running_server(directory)
    if server_json:
        check_same_settings(directory, server_json, settings)
        return _report_server(line, server_json, "already running")
    prepare_data_dir(directory)
    settings, sentences = next_start(directory, settings)
    for sentence in sentences:
        tell(sentence)
    argv = serve_argv(directory, settings)
    if not line.detach:
        sys.stdout.flush()
        os.execv(argv[0], argv)
    return _report_server(line, start_server(directory, argv))


def _report_server(line: CommandLine, server_json: dict[str, Any], state: str = "ready") -> int:
    if line.json:
        show_json(server_json)
        return 0
    show(f"The cluster is {state}: {server_json['url']} (pid {server_json['pid']})")
    show(f"kubectl:   export KUBECONFIG={server_json.get('kubeconfig') or os.path.join(data_dir(line), 'kubeconfig')}")
    if server_json.get("notice"):
        tell(f"warning: {server_json['notice']}")
    if server_json.get("ui"):
        show(f"web UI:    {server_json['ui']} (`rowlock ui` opens it)")
    if server_json.get("uiOthers"):
        show(
            f"           {' '.join(server_json['uiOthers'])} for others, with a login page{_describe_certificate(line, server_json)}"
        )
    if server_json.get("others"):
        show(f"For others: {' '.join(server_json['others'])} (`rowlock kubeconfig --user NAME` for each)")
    return 0


def _describe_certificate(line: CommandLine, server_json: dict[str, Any]) -> str:
    """A line that names the certificate that browsers will see, because they warn about unknown ones."""
    if (server_json.get("flags") or {}).get("ui_cert") not in (None, "", "None"):
        return ""
    authority = os.path.join(data_dir(line), "ca.crt")
    return f";\n           its certificate is self-made: browsers warn until they trust {authority} (or give --ui-cert and --ui-key)"


# ---------------------------------------------------------------- status


def status(line: CommandLine) -> int:
    directory = data_dir(line)
    server_json = running_server(directory)
    if server_json is None and (shared_server := client.find_system_server(line)) is not None:
        directory, line.server = shared_server.directory, shared_server
        server_json = running_server(directory)
    if server_json is None and (url := client.remote_url(line)):
        return _show_remote_status(line, url)
    if server_json is None:
        last_server_json = read_server_json(directory)
        body: dict[str, Any] = {"running": False, "dataDir": directory, "pid": None, "url": None, "kubeconfig": None}
        if line.json:
            show_json(body)
        elif last_server_json:
            show(
                f"The server of {directory} (pid {last_server_json.get('pid')}) is gone. Start it again: `{restart_command(last_server_json)}`"
            )
        else:
            start = f"Start one: `rowlock up -d{data_dir_flag(directory)}`"
            show(f"No server is running for {directory}{describe_copy(directory)}. {start}")
        return 1
    server = client.connect(line)
    nodes, phases = _visible_nodes(server), _count_phases(server)
    if line.json:
        node_list = [{"name": n["metadata"]["name"], "allocatable": n["status"].get("allocatable", {})} for n in nodes]
        body = {"running": True, "dataDir": directory, **server_json, "nodes": node_list, "workloads": phases}
        body |= {"warmStarts": warm} if (warm := _describe_warm_starts(nodes)) else {}
        show_json({**body, "ready": server.takes_writes()})
        return 0
    show(f"Server:      {server_json['url']} (pid {server_json['pid']}, version {server_json.get('version', '?')})")
    is_ready = server.takes_writes()
    show(f"Data:        {directory}{'' if is_ready else f': {_NO_WRITES}, see {directory}/server.log'}")
    if server_json.get("kubeconfig"):
        show(f"Kubeconfig:  {server_json['kubeconfig']}")
    if server_json.get("ui"):
        show(f"Web UI:      {server_json['ui']} (`rowlock ui` opens it)")
    if server_json.get("uiOthers"):
        show(f"             {' '.join(server_json['uiOthers'])} for others")
    if server_json.get("others"):
        show(f"For others:  {' '.join(server_json['others'])}")
    if (server_json.get("flags") or {}).get("scheduler") == "own":
        show(f"Scheduler:   {_describe_leader(server, 'scheduler')}")
    if (server_json.get("flags") or {}).get("operator") == "own":
        show(f"Operator:    {_describe_leader(server, 'operator')}")
    show(f"Workloads:   {_describe_phases(phases)}")
    if warm := _describe_warm_starts(nodes):
        show(f"Warm starts: {warm}")
    if not nodes:
        return 0
    show("")
    show(table(("NODE", "STATUS", "CPUS", "MEMORY", "GPUS", "NETWORK"), [_node_row(n) for n in nodes]))
    if any(node.get("spec", {}).get("unschedulable") for node in nodes):
        show(_CORDONED_NOTE)
    return 0


def _show_remote_status(line: CommandLine, url: str) -> int:
    """Show the status of a server on another machine, as its user may see it."""
    server = client.connect(line)
    user, phases = str(server.get("/api/v1/me")["username"]), _count_phases(server)
    body = {"running": True, "dataDir": data_dir(line), "url": url, "user": user, "workloads": phases}
    return show_result(line, body, f"Server:      {url} (as {user})", f"Workloads:   {_describe_phases(phases)}")


def _count_phases(server: client.ServerClient) -> dict[str, int]:
    phases: dict[str, int] = {}
    for workload in client.list_all(server, "/api/v1/workloads", "workloads"):
        phases[workload["phase"]] = phases.get(workload["phase"], 0) + 1
    return phases


def _describe_phases(phases: dict[str, int]) -> str:
    return ", ".join(f"{n} {p}" for p, n in sorted(phases.items())) or "none"


def _visible_nodes(server: client.ServerClient) -> list[dict[str, Any]]:
    """The nodes of the cluster; [] if the user may not see them, or a real cluster does not answer."""
    try:
        return list(server.get("/api/v1/nodes")["items"])
    except client.StatusError as refusal:
        if refusal.status not in (403, 503):
            raise
        return []


def _describe_warm_starts(nodes: list[dict[str, Any]]) -> str:
    """Which environments were imported ahead of their next program since the server started, in a sentence; "" = none."""
    found = ((node["metadata"].get("annotations") or {}).get("rowlock.dev/warm-ahead") for node in nodes)
    return "; ".join(filter(None, found))


def _describe_leader(server: client.ServerClient, part: str) -> str:
    """A line that names the process which holds the Lease of this part on a real cluster, or warns that no process
    renews it."""
    try:
        lease = server.get(f"{_LEASES_PATH}/rowlock-{part}")["spec"]
    except CommandError as refusal:
        return f"not known: {refusal.message}"
    holder, renewed = lease.get("holderIdentity"), parse_time(lease.get("renewTime"))
    age = (datetime.now(UTC) - renewed).total_seconds() if renewed else 0.0
    if not holder or age > _LEASE_GRACE * float(lease.get("leaseDurationSeconds") or 0):
        return f"nobody does its work now: look into server.log of `rowlock up --{part} own`"
    return f"rowlock's, in process {holder} (machine_pid_start)"


_LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/rowlock-system/leases"
_LEASE_GRACE = 2
"""After so many lease durations a Lease counts as abandoned, even if the two clocks differ a little."""
_NO_WRITES = "the disk refused the last write (is it full, or read-only?); jobs go on, and nothing can be submitted"
_CORDONED_NOTE = """
A cordoned node takes no new pods. Either `kubectl cordon` cordoned it, or an earlier `rowlock up` with other flags added it
and pods are still on it. Delete these pods (`rowlock delete JOB`), and the next `rowlock up` removes the node."""


def _node_row(node: dict[str, Any]) -> tuple[str, ...]:
    allocatable = node["status"].get("allocatable") or {}
    annotations = node["metadata"].get("annotations") or {}
    gpus = str(allocatable.get("nvidia.com/gpu", "0"))
    simulated = " (simulated)" if has_simulated_gpus(node) else ""
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or [])
    return (
        node["metadata"]["name"],
        ("Ready" if ready else "NotReady") + (", cordoned" if node.get("spec", {}).get("unschedulable") else ""),
        str(allocatable.get("cpu", "")),
        format_memory(str(allocatable.get("memory", ""))),
        gpus + simulated,
        annotations.get("rowlock.dev/network", ""),
    )


def version(line: CommandLine) -> int:
    from rowlock import __version__

    return show_result(line, {"version": __version__}, f"rowlock {__version__}")
