"""Two users of one machine: whoever is not the server's user reads none of its Secrets, logs and files, and opens none of its doors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent

STRANGER = 65534
"""`nobody`, who is on every machine."""
LOOK_AROUND = """
import json, os, socket, ssl, sys, urllib.error, urllib.request
data, url, ui, words = *sys.argv[1:], sys.stdin.read()
found = []
for word in ("", "token", "cluster.db", "cluster.db-wal", "kubeconfig", "server.json", "server.key", "lock", "logs", "pods", "claims",
             "checkpoints", "hosts", "podhost.sock", "archive", "archive/archive.db", "archive/logs", "audit.jsonl", "accounts.json",
             "sources", "sources/store.git", "sources/packages"):
    path = os.path.join(data, word)
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
        found.append(word)
    except OSError:
        pass
try:
    with socket.socket(socket.AF_UNIX) as pod_host:
        pod_host.connect(os.path.join(data, "podhost.sock"))
    found.append("the pod host")
except OSError:
    pass
trusting = ssl._create_unverified_context()
for path in ("/api/v1/secrets", "/api/v1/workloads", "/api/v1/pods", "/metrics", "/api/v1/runs", "/api/v1/users", "/api/v1/me",
             "/api/v1/scheduler/cards", "/api/v1/scheduler/nodes", "/api/v1/scheduler/snapshot", "/api/v1/openapi.json",
             "/api/v1/applications"):
    try:
        urllib.request.urlopen(url + path, context=trusting, timeout=20)
        found.append(path)
    except urllib.error.HTTPError as refusal:
        if refusal.code != 401:
            found.append(f"{path}: {refusal.code}")
for path in ("workloads", "ui/workloads", "ui/session", "runs"):
    try:
        urllib.request.urlopen(ui + "api/v1/" + path, timeout=20)
        found.append("the web UI: " + path)
    except urllib.error.HTTPError:
        pass
said = ""
for pid in os.listdir("/proc"):
    try:
        said += open(f"/proc/{int(pid)}/cmdline", "rb").read().decode(errors="replace") if int(pid) != os.getpid() else ""
    except (OSError, ValueError):  # no process, or it has ended
        pass
found += [word for word in words.split(",") if word in said]
print(json.dumps(found))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_of_the_machine_gets_at_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="rowlock-shared-") as shared:
        Path(shared).chmod(0o711)  # only what is ours shall keep him out
        with lent(Path(shared)) as cluster:
            cluster.up()
            program = "echo private; echo x > $ROWLOCK_CHECKPOINT_DIR/state"
            cluster.run("rowlock", "run", "--name", "writes", "--", "sh", "-c", program)
            secret = {"metadata": {"name": "password"}, "stringData": {"word": "private"}}
            cluster.api("POST", "/api/v1/namespaces/runai-default/secrets", secret)
            cluster.api("POST", "/api/v1/users", {"username": "ana", "password": "private-password"})
            for name in ("accounts.json", "audit.jsonl", "archive/archive.db"):
                cluster.until((cluster.data / name).exists, name)
            assert look_around(cluster) == [], "what somebody else got at"


def look_around(cluster: Cluster) -> list[str]:
    """What a stranger reaches."""
    server = json.loads((cluster.data / "server.json").read_text())
    token = (cluster.data / "token").read_text().strip()
    done = subprocess.run(
        ["/usr/bin/env", "-i", _python(), "-c", LOOK_AROUND, str(cluster.data), server["url"], server["ui"]],
        input=f"{token},private-password", user=STRANGER, group=STRANGER, extra_groups=(), capture_output=True, text=True, timeout=200, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def _python() -> str:
    """One that he may start: that of the virtual environment may lie in a home that is closed to him."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
