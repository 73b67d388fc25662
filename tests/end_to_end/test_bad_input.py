"""What a user gets wrong: one clear sentence, an exit code that is not 0, and nothing half done.

One cluster serves the whole file; it holds a finished job `hello` and nothing else, and no refused line adds to it.
"""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent, make

JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bad}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: {spec: {containers: [{name: pytorch, image: host, command: ["true"]}]}}
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes with a pretend GPU each, and one finished job."""
    with lent(tmp_path_factory.mktemp("bad-input")) as made:
        made.up("--nodes", "2", "--simulated-gpus", "1")
        made.run("rowlock", "run", "--name", "hello", "--", "true")
        yield made


def refused(cluster: Cluster, line: str, **env: str) -> tuple[int, str]:
    """Exit code and sentence of a line that must be refused: stderr, at most two lines of it."""
    done = subprocess.run(
        shlex.split(line),
        env={**cluster.env, **env},
        text=True,
        capture_output=True,
        timeout=200,
        stdin=subprocess.DEVNULL,
    )
    said = done.stderr.strip()
    assert done.returncode != 0, f"{line} was accepted: {done.stdout}{said}"
    assert said and len(said.splitlines()) <= 2 and "Traceback" not in said, f"{line}: {done.stdout}{said}"
    return done.returncode, said


# ---------------------------------------------------------------- lines that are not understood

NOT_UNDERSTOOD = [
    ("rowlock lst", "has no command `lst`. Did you mean `list`?"),
    ("runai lst", "has no command `lst`. Did you mean `list`?"),
    ("rowlock project crate", "Did you mean `create`?"),
    ("rowlock list --jsn", "unknown flag: --jsn. Did you mean `--json`?"),
    ("runai submit-pytorch --nme x -i host", "unknown flag: --nme. Did you mean `--name`?"),
    ("rowlock list extra", "takes no argument, but `extra` was given"),
    ("rowlock describe", "needs one job"),
    ("rowlock describe --data-dir", "flag needs an argument: --data-dir"),
    ("rowlock run -- no-such-program", "there is no program no-such-program in your PATH: correct its name"),
    ("rowlock run -- ./nothing.sh", "./nothing.sh is no program: there is no such file"),
    ("rowlock run -- README.md", "there is no program README.md in your PATH"),
    ("rowlock run -- ./README.md", "./README.md is no program: make it executable"),
    ("rowlock run -i -- cat", "flag needs an argument: -i. `-i` is --image here"),
    ("rowlock run --debug -- true", "flag needs an argument: --debug"),
    ("rowlock run --resume-from= -- true", "--resume-from needs the name or id of a run, and is empty"),
    ("rowlock run", "say what to run: `rowlock run [flags] -- python train.py …`"),
    ("rowlock run --name x --", "say what to run"),
    ("rowlock run --nnodes 0 -- true", "--nnodes must be at least 1, but is 0"),
    ("rowlock run --nnodes two -- true", 'invalid argument "two" for --nnodes: it must be a whole number'),
    ("rowlock run --working-dir /no/such/place -- true", 'the working directory "/no/such/place" does not exist'),
    ("rowlock run --env NOBODY_SET_ME -- true", "write --env NOBODY_SET_ME=VALUE"),
    ("rowlock wait hello --for finished", '"completed", "running", "failed", "deleted"'),
    ("rowlock wait hello --timeout soon", 'invalid argument "soon" for --timeout: write a duration such as 30s'),
    ("rowlock list -o foo", "unknown flag: -o. Did you mean `--json`? Without it, a table is printed."),
    ("rowlock history --status nonsense", "there is no status nonsense. Known: Pending, Running, Degraded, Stopped"),
    ("rowlock history --since 7", 'invalid argument "7" for --since: say the unit, for example 7d, 12h or 30m'),
    ("rowlock port-forward hello 99999:80", '"99999:80" is not a pair of ports: write LOCAL:REMOTE, ports from 1'),
    (
        "runai list jobs --config-path /etc/hosts",
        "/etc/hosts is a file, and not the data directory of a server",
    ),
    ("rowlock list --phase faild", "there is no phase faild. Did you mean `Failed`?"),
    ("rowlock up -d --nodes 0", "--nodes must be at least 1, but is 0"),
    ("rowlock up -d --log-limit 5x", 'invalid argument "5x" for --log-limit: write a size such as 50Mi or 1Gi'),
    ("rowlock up -d --event-ttl 5ms", "--event-ttl must be at least 1s, but is 5ms"),
    ("rowlock up -d --log-limit 5Ki", "--log-limit must be at least 1Mi, but is 5Ki"),
    ("rowlock up -d --simulated-gpus -1", "--simulated-gpus must be at least 0, but is -1"),
    ("rowlock up -d --gpus-per-node -1", "--gpus-per-node must be at least 0, but is -1"),
    ("rowlock up -d --port 99999", "--port must be at most 65535, but is 99999"),
    ("rowlock up -d --host-ports 80x", "--host-ports takes port numbers with commas between them, not 80x"),
    ("rowlock up -d --host-ports 5000,6443", "--host-ports 6443: that port is rowlock's own in the pods' network"),
    ("rowlock up -d --without kublet", "--without takes kubelet and scheduler, not kublet"),
    ("rowlock down --yes --timeout soon", 'invalid argument "soon" for --timeout'),
    ("rowlock down --keep-jobs --stop-jobs", "--keep-jobs and --stop-jobs exclude each other"),
    ("rowlock build .", "the image needs a name: `rowlock build -t NAME DIR`"),
    ("rowlock image add x", "--host for this machine's programs, or --dir DIR"),
]


@pytest.mark.parametrize(("line", "words"), NOT_UNDERSTOOD, ids=[line for line, _ in NOT_UNDERSTOOD])
def test_a_line_that_is_not_understood(shared: Cluster, line: str, words: str) -> None:
    code, said = refused(shared, line)
    assert code == 2 and words in said, said


# ---------------------------------------------------------------- things that are not there

NOT_THERE = [
    ("rowlock describe helo", "The job helo does not exist in project default. Did you mean `hello`?"),
    ("rowlock logs helo", "Did you mean `hello`?"),
    ("rowlock wait helo", "Did you mean `hello`?"),
    ("rowlock delete helo", "Did you mean `hello`?"),
    ("rowlock explain helo", "Did you mean `hello`?"),
    ("runai describe job helo", "Did you mean `hello`?"),
    ("runai logs helo", "Did you mean `hello`?"),
    ("rowlock logs hello --pod worker-9", "Its pods: hello-master-0."),
    ("rowlock list -p defalt", "project defalt was not found. Did you mean `default`?"),
    ("rowlock run -p defalt -- true", "`rowlock project list` shows them"),
    ("rowlock project set defalt", "Did you mean `default`?"),
    ("runai config project defalt", "project defalt was not found."),
    ("rowlock build -t x /no/such/directory", "there is no directory /no/such/directory"),
    ("rowlock image add x --dir /no/such/directory", "there is no directory /no/such/directory"),
    ("rowlock image remove nothing", 'no image "nothing" here'),
    ("rowlock wait hello --for running --timeout 1s", "Job hello is completed"),
    ("rowlock suspend hello", "has completed and cannot be suspended"),
]


@pytest.mark.parametrize(("line", "words"), NOT_THERE, ids=[line for line, _ in NOT_THERE])
def test_what_is_not_there(shared: Cluster, line: str, words: str) -> None:
    code, said = refused(shared, line)
    assert code == 1 and words in said, said


# ---------------------------------------------------------------- jobs that cannot be

IMPOSSIBLE = [
    ("rowlock run -i team/nothing:1 -- true", 'no image "team/nothing:1" on this node'),
    ("rowlock run --name hello -- true", "there is a job hello in project default already: replace it with --replace"),
    ("runai submit-pytorch --name hello -i host", "the job hello already exists, please delete it first"),
    ("rowlock run --name Bad_Name -- true", "Use 'bad-name', for example."),
    (f"rowlock run --name {'a' * 70} -- true", "has 70 characters"),
    ("rowlock run --memory 2Gx -- true", "--memory: '2Gx' is not a quantity: write a number and a unit"),
    ("runai submit-pytorch --name x -i host --memory 2Gx", "--memory: '2Gx' is not a quantity"),
    ("rowlock run --cpu -1 -- true", "--cpu: must be no less than 0"),
    ("rowlock run --gpu 1.5 -- true", "whole GPUs or a share of one, not both"),
    ("rowlock run --gpu 4 -- true", "a pod asks for 4 GPUs, but the largest node has 1."),
    ("rowlock run --env =x -- true", "--env: '' is not the name of an environment variable"),
    ("runai submit-pytorch --name x", "-i, --image must be set"),
    ("runai submit-pytorch --name x -i host --command", "--command needs the command after `--`"),
    ("rowlock run --simulated-gpus 2 -- true", "but without --simulated-gpus 2. Stop it first: `rowlock down`"),
    ("rowlock run --simulated-gpus -2 -- true", "--simulated-gpus must be at least 0"),
    ("rowlock up -d --nodes 3", "but without --nodes 3. Stop it first: `rowlock down`"),
]


@pytest.mark.parametrize(("line", "words"), IMPOSSIBLE, ids=[line[:60] for line, _ in IMPOSSIBLE])
def test_a_job_that_cannot_be_leaves_nothing(shared: Cluster, line: str, words: str) -> None:
    _, said = refused(shared, line)
    assert words in said, said
    assert [job["name"] for job in shared.json("rowlock", "list", "-A", "--json")] == ["hello"]


def test_an_unknown_image_waits_with_the_line_that_fixes_it(shared: Cluster) -> None:
    shared.run("runai", "submit-pytorch", "--name", "unmapped", "-i", "nowhere/image:1")
    try:
        shared.until(lambda: "image add" in shared.run("rowlock", "explain", "unmapped"), "the event with the remedy")
        said = shared.run("rowlock", "explain", "unmapped")
        assert "ErrImagePull" in said and "`rowlock build -t nowhere/image:1 DIR`" in said
        assert "waiting to start: ErrImagePull" in shared.run("runai", "logs", "unmapped", code=1)
    finally:
        shared.run("rowlock", "delete", "unmapped")


@pytest.mark.parametrize(
    ("flags", "command", "words"),
    [
        ("--clean-env", "no-such-program", 'exec: "no-such-program": executable file not found in $PATH'),
    ],
)
def test_a_program_that_cannot_start_says_why(shared: Cluster, flags: str, command: str, words: str) -> None:
    _, said = refused(shared, f"rowlock run --rm --name lame {flags} -- {command}".replace("  ", " "))
    assert "rank 0 (pod lame-master-0, node " in said and f") could not start: {words}" in said, said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("FROM x\nSNAPSHOT true\n", "line 2: unknown instruction SNAPSHOT"),
        ("FROM x\nRUNN true\n", "line 2: unknown instruction RUNN; did you mean RUN?"),
        ("FROM x\nRUN exit 7\n", "line 2: `RUN exit 7` ended with exit code 7"),
        ("FROM x\nCOPY missing /\n", "line 2: COPY: missing is not in"),
        ("RUN true\n", "line 1: RUN before FROM"),
        ("", "no FROM instruction"),
    ],
)
def test_a_dockerfile_that_cannot_be_built(shared: Cluster, tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "Dockerfile").write_text(content)
    _, said = refused(shared, f"rowlock build -t broken {tmp_path}")
    assert words in said, said
    assert "broken" not in [
        image["name"].partition(":")[0] for image in shared.json("rowlock", "image", "list", "--json")
    ]


# ---------------------------------------------------------------- no server, and data directories


@pytest.mark.parametrize(
    "line", ["rowlock list", "rowlock run -p x --help-me", "runai list jobs", "rowlock wait hello"]
)
def test_no_server(shared: Cluster, tmp_path: Path, line: str) -> None:
    _, said = refused(shared, line, ROWLOCK_DATA_DIR=str(tmp_path))
    assert "Start one: `rowlock up -d`" in said or "unknown flag: --help-me" in said, said
    assert not list(tmp_path.iterdir())


def test_a_dead_server(shared: Cluster, tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / "server.json").write_text(json.dumps({"pid": gone.pid, "url": "https://127.0.0.1:1"}))
    for line in ("rowlock list", "runai list jobs"):
        _, said = refused(shared, line, ROWLOCK_DATA_DIR=str(tmp_path))
        assert "is not running any more. Start it again: `rowlock up -d`; nothing is lost" in said
    flags = {"nodes": 2, "simulated_gpus": 1, "network": "auto", "port": 7, "users": None}
    (tmp_path / "server.json").write_text(json.dumps({"pid": gone.pid, "url": "https://127.0.0.1:1", "flags": flags}))
    for line in ("rowlock list", "rowlock status", "rowlock doctor"):
        env = {**shared.env, "ROWLOCK_DATA_DIR": str(tmp_path)}
        done = subprocess.run(shlex.split(line), env=env, text=True, capture_output=True, timeout=200, check=False)
        assert "`rowlock up -d --nodes 2 --simulated-gpus 1`" in done.stdout + done.stderr


@pytest.mark.parametrize("line", ["rowlock up -d", "rowlock up", "rowlock run -- true"])
def test_a_data_directory_that_cannot_be(shared: Cluster, tmp_path: Path, line: str) -> None:
    (tmp_path / "file").write_text("mine")
    for name, why in (("file", "it is a file"), ("file/below", "Not a directory")):
        _, said = refused(shared, line, ROWLOCK_DATA_DIR=str(tmp_path / name))
        assert f"cannot be the data directory ({why}): choose another with --data-dir" in said, said
    assert (tmp_path / "file").read_text() == "mine"


def test_an_image_that_cannot_be_kept(shared: Cluster, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "Dockerfile").write_text("FROM x\n")
    for line in (f"rowlock build -t x {tmp_path}", "rowlock image add x --host"):
        _, said = refused(shared, line, ROWLOCK_DATA_DIR=str(tmp_path / "file"))
        assert f"{tmp_path}/file/images" in said and "Not a directory" in said and "Errno" not in said, said


def test_a_port_in_use(shared: Cluster, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for flags in ("-d", ""):
            _, said = refused(
                shared, f"rowlock up {flags} --port {port}".replace("  ", " "), ROWLOCK_DATA_DIR=str(tmp_path)
            )
            assert f"port {port} is taken: choose another with --port" in said, said
    assert not (tmp_path / "server.json").exists()


def test_the_certificate_of_another_cluster(shared: Cluster, tmp_path: Path) -> None:
    server_json = json.loads((shared.data / "server.json").read_text())
    del server_json["directory"]  # with it the copy is known for one, and no server is looked for
    (tmp_path / "server.json").write_text(json.dumps(server_json))
    shutil.copy(shared.data / "token", tmp_path)
    _, said = refused(shared, "rowlock list", ROWLOCK_DATA_DIR=str(tmp_path))
    assert "ca.crt cannot be read" in said
    shutil.copy(shared.data / "ca.crt", tmp_path)
    (tmp_path / "token").write_text("another cluster's\n")
    _, said = refused(shared, "rowlock list", ROWLOCK_DATA_DIR=str(tmp_path))
    assert "token" in said


def test_gpus_where_there_are_none(tmp_path: Path, shared: Cluster) -> None:
    other = make(tmp_path / "data", tmp_path)
    other.up()
    try:
        if any("nvidia.com/gpu" in node["allocatable"] for node in other.json("rowlock", "status", "--json")["nodes"]):
            pytest.skip("this machine has GPUs, so that asking for one is not refused")
        _, said = refused(other, "rowlock run --gpu 1 -- true")
        assert "no node of this cluster has one" in said and "--simulated-gpus 1" in said
    finally:
        other.run("rowlock", "down", "--yes")


# ---------------------------------------------------------------- kubectl

KUBECTL = [
    ("get trainjobz", "", 'doesn\'t have a resource type "trainjobz"'),
    ("get pytorchjob nope", "", 'pytorchjobs.kubeflow.org "nope" not found'),
    ("apply -f -", JOB.replace("ReplicaSpecs", "ReplicaSpec"), 'unknown field "spec.pytorchReplicaSpec"'),
    ("apply -f -", JOB.replace("image:", "imag:"), "containers[0].imag"),
    ("apply -f -", JOB.replace("PyTorchJob", "PyTorchJoob"), 'no matches for kind "PyTorchJoob"'),
    ("apply -f -", JOB.replace("name: bad", "name: Bad_"), "RFC 1123"),
    ("apply -f -", JOB.replace("name: pytorch,", "name: pytorch, resources: {limits: {cpu: 1x}},"), '"1x"'),
    ("apply -f -", JOB.replace("replicas: 1", 'replicas: "1"'), "must be of type integer"),
    ("get pods --token=wrong", "", "Unauthorized"),
]


@pytest.mark.parametrize(("words", "manifest", "sentence"), KUBECTL, ids=[sentence for *_, sentence in KUBECTL])
def test_kubectl_hears_what_a_real_cluster_says(shared: Cluster, words: str, manifest: str, sentence: str) -> None:
    kubectl = shutil.which("kubectl", path=shared.env["PATH"])
    if kubectl is None:
        pytest.skip("kubectl is not on this machine")
    done = subprocess.run(
        [kubectl, *words.split()], env=shared.env, input=manifest, text=True, capture_output=True, timeout=60
    )
    assert done.returncode == 1 and sentence in done.stderr, done.stdout + done.stderr
    assert [job["name"] for job in shared.json("rowlock", "list", "-A", "--json")] == ["hello"]
