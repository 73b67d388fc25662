"""A server that others can reach: refused without users; with them, everybody has a token of his own."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.cluster import Cluster, make

ELSEWHERE = "127.0.0.2"
"""Not an address of another machine, but not ours alone either: everything but 127.0.0.1 is elsewhere."""
ANA, BOB = "a" * 40, "b" * 40


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = make(tmp_path / "data", tmp_path)
    yield made
    subprocess.run(["rowlock", "down", "--yes"], env=made.env, capture_output=True, timeout=200)


def people(tmp_path: Path, mode: int = 0o600) -> Path:
    path = tmp_path / "users.csv"
    path.write_text(f"# who, not, these, ones\n{ANA},ana,1,system:masters\n{BOB},bob,2,rowlock:viewers\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--bind", ELSEWHERE],
            "lets other users connect, but the owner's token is for the owner alone: make users with",
        ),
        (["--bind", "0.0.0.0"], "--users FILE, a file that only you can read"),
        (["--bind", "gpu-box", "--users", "u"], "--bind takes an address of this machine"),
        (["--bind", ELSEWHERE, "--users", "absent"], "cannot be read (No such file"),
        (["--bind", ELSEWHERE, "--users", "users.csv"], "others can read the tokens in"),
    ],
)
def test_others_do_not_come_in_without_users(cluster: Cluster, tmp_path: Path, flags: list[str], said: str) -> None:
    open_to_all = str(people(tmp_path, 0o644))
    flags = [open_to_all if flag == "users.csv" else flag for flag in flags]
    text = cluster.run("rowlock", "up", "-d", *flags, code=1)
    assert said in text and len(text.strip().splitlines()) == 1
    assert not (cluster.data / "server.json").exists()


def asked(config: dict[str, Any], path: str, *, token: str = "", method: str = "GET", body: bytes | None = None) -> int:
    """The status of one request, with what a kubeconfig says."""
    server = config["clusters"][0]["cluster"]
    authority = base64.b64decode(server["certificate-authority-data"]).decode()
    headers = {"Authorization": f"Bearer {token or config['users'][0]['user']['token']}"}
    request = urllib.request.Request(server["server"] + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(
            request, context=ssl.create_default_context(cadata=authority), timeout=30
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_everybody_has_a_token_of_his_own(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up("--bind", ELSEWHERE, "--users", str(people(tmp_path)), "--without", "kubelet,scheduler")
    configs = {name: json.loads(cluster.run("rowlock", "kubeconfig", "--user", name)) for name in ("ana", "bob")}
    assert configs["ana"]["clusters"][0]["cluster"]["server"].startswith(f"https://{ELSEWHERE}:")
    assert f"For others:  https://{ELSEWHERE}:" in cluster.run("rowlock", "status")
    owner = (cluster.data / "token").read_text().strip()
    for path in ("/api/v1/nodes", "/api/v1/workloads"):  # Kubernetes' door, and the platform's
        assert asked(configs["ana"], path) == 200, path
        assert asked(configs["bob"], path) == 200, path
        assert asked(configs["ana"], path, token=owner) == 401, f"{path}: the owner's token opens doors elsewhere"
        assert asked(configs["ana"], path, token="x" * 40) == 401, path
    project = json.dumps({"name": "p", "deservedGpus": 1}).encode()
    for path in ("/api/v1/namespaces/default/configmaps", "/api/v1/org-unit/projects"):
        assert asked(configs["bob"], path, method="POST", body=project) == 403, path
    assert cluster.api("GET", "/api/v1/namespaces/default")["metadata"]["name"] == "default"  # the owner, on loopback
    text = (cluster.data / "server.json").read_text() + (cluster.data / "server.log").read_text()
    assert ANA not in text and BOB not in text, "tokens are nobody's to read"
    assert "has no user eve; there are: ana, bob" in cluster.run("rowlock", "kubeconfig", "--user", "eve", code=1)


def test_without_users_there_is_no_kubeconfig_for_one(cluster: Cluster) -> None:
    assert "no server runs" in cluster.run("rowlock", "kubeconfig", "--user", "ana", code=1)
