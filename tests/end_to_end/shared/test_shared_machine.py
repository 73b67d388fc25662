"""A machine that people share: `rowlock up --system` as root, and two of its users at their own command lines."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent

import rowlock

ANA, BOB = "daemon", "nobody"
"""Two accounts that every Linux has."""


def has_accounts() -> bool:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return {ANA, BOB} <= names


pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not sys.platform.startswith("linux") or not has_accounts(),
    reason="only root on Linux runs programs as other users",
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    public = Path("/tmp") / f"rowlock-shared-{os.getpid()}"  # pytest's own directories are closed to other users
    with lent(tmp_path_factory.mktemp("machine")) as made:
        made.env["ROWLOCK_SYSTEM_DIR"] = str(public)
        made.up("--system", "--max-pods", "50")
        made.run("rowlock", "project", "create", "one", "--unix-account", ANA)
        made.run("rowlock", "project", "create", "two", "--unix-account", BOB)
        yield made
    subprocess.run(["rm", "-rf", str(public)], check=True)


CLIENT = """
import json, socket, ssl, sys, urllib.error, urllib.request
directory, method, path, body = sys.argv[1:5]
connection = socket.socket(socket.AF_UNIX)
connection.connect(f"{directory}/login.sock")
token = json.loads(connection.makefile().readline())["token"]
facts = json.load(open(f"{directory}/server.json"))
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
request = urllib.request.Request(facts["url"] + path, body.encode() or None, headers, method=method)
try:
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=f"{directory}/ca.crt")) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
"""A user's program: what his command line does, with an interpreter that every user may run."""


def ask(machine: Cluster, user: str, method: str, path: str, body: object = None) -> tuple[int, str]:
    """A request of a user of the machine, who logs in at the socket."""
    entry, text = pwd.getpwnam(user), "" if body is None else json.dumps(body)
    interpreter = "/usr/bin/python3"
    if not os.access(interpreter, os.X_OK):
        pytest.skip("no interpreter that every user may run: /usr/bin/python3 is missing")
    done = subprocess.run(
        [interpreter, "-I", "-c", CLIENT, machine.env["ROWLOCK_SYSTEM_DIR"], method, path, text],
        user=entry.pw_uid, group=entry.pw_gid, extra_groups=[], cwd="/", env={}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code, _, answer = done.stdout.partition(" ")
    return int(code), answer


def pod(name: str, command: str, **spec: object) -> dict[str, object]:
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["sh", "-c", command]}
    content = {"restartPolicy": "Never", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": content}


def test_each_runs_as_who_he_is_and_sees_his_own(machine: Cluster) -> None:
    uid = pwd.getpwnam(ANA).pw_uid
    job = {"name": "mine", "projectId": "one", "spec": {
        "image": "rowlock.dev/host", "command": ["sh", "-c", "id -u; cat $ROWLOCK_DATA/token"], "noWorkers": True, "distributedFramework": "PyTorch",
        "environmentVariables": [{"name": "ROWLOCK_DATA", "value": str(machine.data)}], "restartPolicy": "Never", "workingDir": "/",
    }}  # fmt: skip
    code, answer = ask(machine, ANA, "POST", "/api/v1/workloads/distributed", job)
    assert code == 202, answer
    identity = json.loads(answer)["workloadId"]
    machine.run("rowlock", "wait", "mine", "-p", "one", "--timeout", "200s", code=None)
    log = machine.run("rowlock", "logs", "mine", "-p", "one")
    assert f"[rank 0] {uid}\n" in log and "ermission denied" in log
    assert ask(machine, ANA, "GET", f"/api/v1/workloads/{identity}/logs")[0] == 200
    assert ask(machine, BOB, "GET", f"/api/v1/workloads/{identity}/logs")[0] in (403, 404)
    assert json.loads(ask(machine, BOB, "GET", "/api/v1/workloads")[1])["workloads"] == []
    assert ask(machine, BOB, "GET", "/api/v1/namespaces/runai-one/pods")[0] == 403
    code, answer = ask(machine, BOB, "POST", "/api/v1/workloads/distributed", {**job, "name": "yours"})
    assert code in (400, 403, 404) and "one" in answer, answer


def test_nobody_leads_around_his_account(machine: Cluster) -> None:
    pods = "/api/v1/namespaces/runai-two/pods"
    container = {"name": "main", "image": "rowlock.dev/host", "command": ["id"], "securityContext": {"runAsUser": 0}}
    for odd in (
        pod("root", "id", securityContext={"runAsUser": 0}),
        pod("root", "id", containers=[container]),
        pod("root", "id", volumes=[{"name": "h", "hostPath": {"path": str(machine.data)}}]),
    ):
        code, answer = ask(machine, BOB, "POST", pods, odd)
        assert code == 403 and "forbidden" in answer, answer
    namespace = machine.api("GET", "/api/v1/namespaces/runai-two")
    namespace["metadata"]["annotations"]["rowlock.dev/unix-account"] = "root uid=0 gid=0 groups=0"
    assert ask(machine, BOB, "PUT", "/api/v1/namespaces/runai-two", namespace)[0] == 403
    machine.run("rowlock", "run", "-d", "-p", "two", "--name", "sleeps", "--", "sleep", "600")
    machine.run("rowlock", "wait", "sleeps", "-p", "two", "--for", "Running", "--timeout", "200s")
    uid = pwd.getpwnam(BOB).pw_uid
    assert machine.run("rowlock", "exec", "-p", "two", "sleeps", "--", "id", "-u").split() == [str(uid)]
    machine.run("rowlock", "delete", "-p", "two", "sleeps")


def test_the_python_client_is_who_runs_it(machine: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As root, who may log in at the socket, too: not as the owner, for nobody names his data directory here."""
    monkeypatch.delenv("ROWLOCK_DATA_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ROWLOCK_SYSTEM_DIR", machine.env["ROWLOCK_SYSTEM_DIR"])
    with rowlock.Client() as client:
        assert client.request("GET", "/api/v1/me")["username"] == "unix:root"
        assert list(client.projects()) == []
    machine.run("rowlock", "access-rule", "create", "--user", "unix:root", "--role", "viewer", "-p", "one")
    with rowlock.Client() as client:
        assert [project.name for project in client.projects()] == ["one"]


def test_a_project_without_an_account_runs_nothing(machine: Cluster) -> None:
    said = machine.run("rowlock", "run", "--name", "refused", "--", "id", code=1)
    assert "has no Unix account" in said
    assert "refused" not in machine.run("rowlock", "list")


def test_a_project_that_changes_hands_is_lost_to_who_had_it(machine: Cluster) -> None:
    machine.run("rowlock", "project", "create", "three", "--unix-account", ANA)
    assert ask(machine, ANA, "GET", "/api/v1/namespaces/runai-three/pods")[0] == 200
    machine.run("rowlock", "project", "update", "three", "--unix-account", BOB)
    assert ask(machine, ANA, "GET", "/api/v1/namespaces/runai-three/pods")[0] == 403
    assert ask(machine, BOB, "GET", "/api/v1/namespaces/runai-three/pods")[0] == 200


def test_wrong_words_get_a_sentence(machine: Cluster) -> None:
    said = machine.run("rowlock", "project", "create", "x", "--unix-account", "nosuchuser", code=2)
    assert "has no user nosuchuser" in said


def test_the_unit_starts_what_the_flags_say(machine: Cluster) -> None:
    unit = machine.run("rowlock", "up", "--system", "--unit", "--max-pods", "70", "--data-dir", "/srv/rowlock data")
    assert "--data-dir '/srv/rowlock data' --max-pods 70 --system" in unit and "KillMode=process" in unit
    assert "go together" in machine.run("rowlock", "up", "--unit", code=2)


def test_the_server_reads_no_file_for_somebody_who_may_not(machine: Cluster) -> None:
    """It is root: advice about a program, and the names of event files, are of files that the asking user may read."""
    home = Path(machine.env["ROWLOCK_SYSTEM_DIR"]) / "of-bob"
    home.mkdir()
    (home / "secret.py").write_text("import speechbrain\n")
    (home / f"events.out.tfevents.{int(time.time()) + 1}.bobs-laptop").write_bytes(b"")
    for path in (*home.iterdir(), home):
        os.chown(path, pwd.getpwnam(BOB).pw_uid, -1)
        path.chmod(0o700)
    container = {
        "name": "pytorch",
        "image": "rowlock.dev/host",
        "command": ["python3", "secret.py"],
        "workingDir": str(home),
    }
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    metadata, replicas = {"name": "looks", "namespace": "runai-one"}, {"Master": replica, "Worker": replica}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {"pytorchReplicaSpecs": replicas},
    }
    code, answer = ask(machine, ANA, "POST", "/api/v1/check", {"objects": [job], "project": "one"})
    assert code == 200 and "SpeechBrain" not in answer, answer
    assert "SpeechBrain" in json.dumps(machine.api("POST", "/api/v1/check", {"objects": [job], "project": "one"})), (
        "the owner may read it"
    )
    assert ask(machine, ANA, "POST", "/apis/kubeflow.org/v1/namespaces/runai-one/pytorchjobs", job)[0] == 201
    machine.until(lambda: "looks" in machine.run("rowlock", "history", "-p", "one"), "the run to be recorded")
    (row,) = [row for row in machine.json("rowlock", "history", "-p", "one", "--json") if row["name"] == "looks"]
    code, answer = ask(machine, ANA, "GET", f"/api/v1/runs/{row['id']}/event-files")
    assert code == 200 and json.loads(answer) == {"files": []}, answer
