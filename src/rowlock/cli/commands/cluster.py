"""`up`, `status` and `version`: start a server, and say how it is.

`up` starts `python -m rowlock.serve` with the flags it was given and, detached, returns when the server answers.
`server.json` says with which flags a server runs, so that a second `up` knows whether it asks for the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

from rowlock.cli import client, system_server
from rowlock.cli.accounts.provider_flags import PROVIDER_FLAGS
from rowlock.cli.context import data_dir, data_dir_flag, named_data_dir, prepare_data_dir
from rowlock.cli.grammar import CommandError, CommandLine, is_digits
from rowlock.cli.node_usage import has_simulated_gpus
from rowlock.cli.output import format_memory, parse_duration, parse_size, parse_time, show, show_json, table, tell
from rowlock.cli.start import server_log
from rowlock.cli.start.former_flags import next_start

SETTINGS = (
    "kubeconfig",
    "scheduler",
    "operator",
    "context",
    "install_crds",
    "nodes",
    "gpus_per_node",
    "simulated_gpus",
    "cpus_per_node",
    "max_pods",
    "host_ports",
    "port",
    "bind",
    "users",
    "tls_san",
    "tls_cert",
    "tls_key",
    "archive",
    "debug_image",
    "ui_address",
    "ui_cert",
    "ui_key",
    *(flag.dest for flag in PROVIDER_FLAGS),
    "network",
    "runtime",
    "warm_start",
    "without",
    "parity",
    "pretend_nodes",
    "half_life",
    "log_limit",
    "pids_limit",
    "keep_checkpoints",
    "keep_runs",
    "archive_size",
    "event_ttl",
    "accept_loss",
)
_POD_NETWORK_PORTS = (3128, 6443)
"""Ports of the pods' proxy and of the API server, at the address where pods reach this machine."""
_REAL_CLUSTER_SETTINGS = (
    "kubeconfig", "context", "install_crds", "scheduler", "operator", "port", "bind", "tls_san", "tls_cert", "tls_key", "archive",
    "debug_image", "keep_runs", "archive_size",
)  # fmt: skip
"""The flags of `up` that are allowed with a real cluster."""
_REAL_CLUSTER_ONLY = (
    "context", "install_crds", "scheduler", "operator", "archive", "debug_image", "tls_cert", "tls_key",
)  # fmt: skip
"""Those that are refused without one."""
_STALLED_TIMEOUT = 30.0
"""Seconds without any progress (CPU time, a line in its log) after which a starting server is given up."""
_STAGE_PREFIX = "starting: "
"""Prefix of log lines in which a starting server says what it does (`assembly.py`)."""
_KILL_TIMEOUT = 5.0  # seconds that a server that is given up may take to end by itself
_POLL_INTERVAL = 0.02
_SYSTEM_DATA_DIR = "/var/lib/rowlock"


def up(line: CommandLine) -> int:
    """Start the cluster; its state is in the data directory."""
    if line.system and not named_data_dir(line):
        line.set_values(data_dir=_SYSTEM_DATA_DIR)
    directory = data_dir(line)
    settings = {name: getattr(line, name) for name in SETTINGS if name in line.given_flags}
    _check_flags(line)
    _check_real_cluster(line, settings)
    for name in ("half_life", "keep_checkpoints", "keep_runs", "event_ttl"):
        if name in settings:
            settings[name] = parse_duration(getattr(line, name), f"--{name.replace('_', '-')}")
    if "log_limit" in settings:
        settings["log_limit"] = parse_size(line.log_limit, "--log-limit", minimum="1Mi")
    if "archive_size" in settings:
        settings["archive_size"] = parse_size(line.archive_size, "--archive-size", minimum="16Mi")
    if settings.get("event_ttl", 1) < 1:
        raise CommandError(f"--event-ttl must be at least 1s, but is {line.event_ttl}", 2)
    for name in ("users", "ui_cert", "ui_key", "tls_cert", "tls_key", "oidc_ca_file", "oidc_client_secret_file"):
        if name in settings:
            settings[name] = os.path.abspath(os.path.expanduser(settings[name]))
    if line.unit and not line.system:
        raise CommandError("--unit prints how systemd starts the server of --system: the two go together", 2)
    if line.unit and line.accept_loss:
        raise CommandError("--accept-loss is for one start, and --unit is for all: leave one of them out", 2)
    if line.system:
        settings["system"] = system_server.check_flags(line)
    if line.unit:
        show(system_server.systemd_unit(serve_argv(directory, settings)))
        return 0
    server_json = client.running_server(directory)
    if server_json:
        return _report_already_running(line, server_json, settings)
    prepare_data_dir(directory)
    settings, sentences = next_start(directory, settings)
    for sentence in sentences:
        tell(sentence)
    argv = serve_argv(directory, settings)
    if not line.detach:
        sys.stdout.flush()
        os.execv(argv[0], argv)
    return _report_server(line, start_server(directory, argv))


def _check_host_ports(text: str) -> None:
    for word in filter(None, text.split(",")):
        if not is_digits(word) or not 0 < int(word) < 65536:
            raise CommandError(f"--host-ports takes port numbers with commas between them, not {word}", 2)
        if int(word) in _POD_NETWORK_PORTS:
            raise CommandError(
                f"--host-ports {word}: that port is rowlock's own in the pods' network; serve on another", 2
            )


def _check_flags(line: CommandLine) -> None:
    for name in ("nodes", "cpus_per_node", "max_pods", "pids_limit", "pretend_nodes", "port"):
        value = getattr(line, name)
        if value is not None and value < 1:
            raise CommandError(f"--{name.replace('_', '-')} must be at least 1, but is {value}", 2)
    for name in ("gpus_per_node", "simulated_gpus"):
        if (getattr(line, name) or 0) < 0:
            raise CommandError(f"--{name.replace('_', '-')} must be at least 0, but is {getattr(line, name)}", 2)
    if line.port is not None and line.port > 65535:
        raise CommandError(f"--port must be at most 65535, but is {line.port}", 2)
    if "gpus_per_node" in line.given_flags and "simulated_gpus" in line.given_flags:
        raise CommandError(
            "--gpus-per-node counts real GPUs and --simulated-gpus simulated ones: give only one of them", 2
        )
    _check_host_ports(line.host_ports or "")
    parts = set(filter(None, (line.without or "").split(",")))
    if unknown := parts - {"kubelet", "scheduler"}:
        raise CommandError(f"--without takes kubelet and scheduler, not {', '.join(sorted(unknown))}", 2)


def _check_real_cluster(line: CommandLine, settings: dict[str, Any]) -> None:
    """Refuse flags of `up` that have no effect on a real cluster, which has its own nodes, users and scheduler."""
    if "kubeconfig" not in settings:
        for name in _REAL_CLUSTER_ONLY:
            if name in settings:
                raise CommandError(f"--{name.replace('_', '-')} needs --kubeconfig FILE", 2)
        return
    is_inside = line.kubeconfig == "in-cluster"  # the server checks itself whether it runs in a pod
    path = line.kubeconfig if is_inside else os.path.abspath(os.path.expanduser(line.kubeconfig))
    settings["kubeconfig"] = path
    if not is_inside and not os.path.isfile(path):
        raise CommandError(f"there is no kubeconfig {path}: name the file that `kubectl config view` reads", 2)
    if local_flags := [f"--{name.replace('_', '-')}" for name in settings if name not in _REAL_CLUSTER_SETTINGS]:
        raise CommandError(
            f"{', '.join(local_flags)} {'is' if len(local_flags) == 1 else 'are'} for a cluster on this machine;"
            " with --kubeconfig leave it out",
            2,
        )


def serve_argv(directory: str, settings: dict[str, Any]) -> list[str]:
    """The server's command line."""
    argv = [sys.executable, "-P", "-m", "rowlock.serve", "--data-dir", directory]
    for name, value in settings.items():
        argv += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return argv


def start_server(directory: str, argv: list[str]) -> dict[str, Any]:
    """Start the server in its own session and return its server.json as soon as it answers. Raises CommandError with the
    last lines of its log."""
    log = os.path.join(directory, "server.log")
    with server_log.open_to_append(log) as output:
        log_offset = output.tell()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd=directory
        )
    is_ready = False
    try:
        progress = _StartProgress(process.pid, log, log_offset)
        while not progress.is_stalled():
            if process.poll() is not None:
                progress.show_stages()
                raise CommandError(
                    server_log.last_line(log, log_offset) or f"the server ended at once; {log} may say why"
                )
            server_json = client.read_server_json(directory)
            if server_json and server_json.get("pid") == process.pid and _accepts_connections(str(server_json["url"])):
                is_ready = True
                return server_json
            time.sleep(_POLL_INTERVAL)
        raise CommandError(
            f"the server did nothing for {_STALLED_TIMEOUT:.0f} s, did not answer, and was stopped; {log} may say why"
        )
    finally:
        if not is_ready:  # also after Ctrl-C: nobody waits for it any more, and it holds the directory's lock
            _end_process(process)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_KILL_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _StartProgress:
    """Watches a starting server: it makes progress while it uses CPU time or writes to its log. Shows the stages of a
    long start."""

    def __init__(self, pid: int, log: str, log_offset: int) -> None:
        self._pid, self._log, self._offset = pid, log, log_offset
        self._seen: tuple[int, int] = (0, 0)
        self._last_progress = time.monotonic()

    def is_stalled(self) -> bool:
        self.show_stages()
        seen = (self._offset, self._cpu_ticks())
        if seen != self._seen:
            self._seen, self._last_progress = seen, time.monotonic()
        return time.monotonic() - self._last_progress > _STALLED_TIMEOUT

    def show_stages(self) -> None:
        with open(self._log, "rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        for stage in whole.decode(errors="replace").splitlines():
            if stage.startswith(_STAGE_PREFIX):
                tell(stage)

    def _cpu_ticks(self) -> int:
        try:
            with open(f"/proc/{self._pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return 0  # no /proc here, or the process has just ended: only the log can tell
        return int(fields[11]) + int(fields[12])


def _accepts_connections(url: str) -> bool:
    import socket
    import urllib.parse

    parts = urllib.parse.urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 443), 1).close()
    except OSError:
        return False
    return True


def _report_already_running(line: CommandLine, server_json: dict[str, Any], settings: dict[str, Any]) -> int:
    check_same_settings(data_dir(line), server_json, settings)
    return _report_server(line, server_json, "already running")


def check_same_settings(directory: str, server_json: dict[str, Any], settings: dict[str, Any]) -> None:
    """Raises CommandError when the running server has other settings than these."""
    current_settings = server_json.get("flags") or {}
    differs = [name for name, value in settings.items() if current_settings.get(name) != value]
    if differs:
        flags = ", ".join(f"--{name.replace('_', '-')} {settings[name]}" for name in differs)
        raise CommandError(
            f"a server is running for {directory} already (pid {server_json['pid']}), but without {flags}. "
            f"Stop it first: `rowlock down{data_dir_flag(directory)}`"
        )


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
    """A line that says which certificate browsers will see, because they warn about unknown ones."""
    if (server_json.get("flags") or {}).get("ui_cert") not in (None, "", "None"):
        return ""
    authority = os.path.join(data_dir(line), "ca.crt")
    return f";\n           its certificate is self-made: browsers warn until they trust {authority} (or give --ui-cert and --ui-key)"


# ---------------------------------------------------------------- status


def status(line: CommandLine) -> int:
    """Show whether the server runs, its address, its nodes and its jobs."""
    directory = data_dir(line)
    server_json = client.running_server(directory)
    if server_json is None and (shared_server := client.find_system_server(line)) is not None:
        directory, line.server = shared_server.directory, shared_server
        server_json = client.running_server(directory)
    if server_json is None and (url := client.remote_url(line)):
        return _show_remote_status(line, url)
    if server_json is None:
        last_server_json = client.read_server_json(directory)
        body: dict[str, Any] = {"running": False, "dataDir": directory, "pid": None, "url": None, "kubeconfig": None}
        if line.json:
            show_json(body)
        elif last_server_json:
            show(
                f"The server of {directory} (pid {last_server_json.get('pid')}) is gone. Start it again: `{client.restart_command(last_server_json)}`"
            )
        else:
            start = f"Start one: `rowlock up -d{data_dir_flag(directory)}`"
            show(f"No server is running for {directory}{client.describe_copy(directory)}. {start}")
        return 1
    server = client.connect(line)
    nodes, phases = _visible_nodes(server), _count_phases(server)
    if line.json:
        node_list = [{"name": n["metadata"]["name"], "allocatable": n["status"].get("allocatable", {})} for n in nodes]
        body = {"running": True, "dataDir": directory, **server_json, "nodes": node_list, "workloads": phases}
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
    if line.json:
        show_json({"running": True, "dataDir": data_dir(line), "url": url, "user": user, "workloads": phases})
        return 0
    show(f"Server:      {url} (as {user})")
    show(f"Workloads:   {_describe_phases(phases)}")
    return 0


def _count_phases(server: client.ServerClient) -> dict[str, int]:
    phases: dict[str, int] = {}
    for workload in client.list_all(server, "/api/v1/workloads", "workloads"):
        phases[workload["phase"]] = phases.get(workload["phase"], 0) + 1
    return phases


def _describe_phases(phases: dict[str, int]) -> str:
    return ", ".join(f"{n} {p}" for p, n in sorted(phases.items())) or "none"


def _visible_nodes(server: client.ServerClient) -> list[dict[str, Any]]:
    """The nodes of the cluster; an empty list for a user who may not see them, and where a real cluster cannot be asked."""
    try:
        return list(server.get("/api/v1/nodes")["items"])
    except client.StatusError as refusal:
        if refusal.status not in (403, 503):
            raise
        return []


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
    """Print the version."""
    from rowlock import __version__

    if line.json:
        show_json({"version": __version__})
    else:
        show(f"rowlock {__version__}")
    return 0
