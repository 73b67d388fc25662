"""Into the pods of a job: exec, bash, attach and port-forward of both command lines; kubectl's where there is one."""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.end_to_end.cluster import Cluster, lent
from tests.end_to_end.run.terminal import Terminal
from tests.kubectl.walks import kubectl, missing

SERVE = "[ $RANK = 0 ] || exec sleep 100000; mkdir -p {0}/www; echo hello from $RANK > {0}/www/index.txt; cd {0}/www; exec python3 -m http.server 8099"


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with the job `trainer`, which serves a page, and the pod `alone`."""
    home = tmp_path_factory.mktemp("inside")
    with lent(home) as made:
        made.up()
        made.run("rowlock", "run", "-d", "--name", "trainer", "-n", "2", "--", "sh", "-c", SERVE.format(home))
        made.run("rowlock", "wait", "trainer", "--for", "running", "--timeout", "200s")
        container = {"name": "main", "image": "rowlock.dev/host", "command": ["sleep", "100000"]}
        body = {"metadata": {"name": "alone"}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
        made.api("POST", "/api/v1/namespaces/runai-default/pods", body)
        one = "/api/v1/namespaces/runai-default/pods/alone"
        made.until(lambda: made.api("GET", one)["status"].get("phase") == "Running", "alone to run")
        asks = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8099/index.txt').read())"
        page = ("rowlock", "exec", "trainer", "--", "python3", "-c", asks)
        made.until(lambda: "hello from 0" in made.run(*page, code=None), "the page to be served", every=0.2)
        yield made
        made.api("DELETE", one)  # a pod of no job would outlive the cluster


def entered(cluster: Cluster, *argv: str, given: bytes = b"") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    done = subprocess.run(argv, env=cluster.env, input=given, capture_output=True, timeout=200)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_commands_streams_and_exit_code_are_ours(inside: Cluster) -> None:
    script = "echo $RANK of $WORLD_SIZE; echo oops >&2; exit 4"
    assert entered(inside, "rowlock", "exec", "trainer", "--", "sh", "-c", script) == (4, "0 of 2\n", "oops\n")
    assert entered(inside, "rowlock", "exec", "trainer", "--rank", "1", "--", "printenv", "RANK")[:2] == (0, "1\n")
    code, out, _ = entered(inside, "runai", "exec", "trainer", "--pod", "worker-0", "printenv", "RANK")
    assert (code, out) == (0, "1\n")
    assert entered(inside, "rowlock", "exec", "alone", "--", "printenv", "HOSTNAME")[1] == "alone\n"


def test_bytes_go_in_and_out_unchanged(inside: Cluster) -> None:
    data = os.urandom(3 << 20)
    argv = ("rowlock", "exec", "-i", "trainer", "--", "cat")
    done = subprocess.run(argv, env=inside.env, input=data, capture_output=True, timeout=200)
    assert done.returncode == 0 and done.stdout == data


@pytest.mark.parametrize(
    ("argv", "code", "text"),
    [
        ("rowlock exec nosuch -- ls", 1, "The job nosuch does not exist in project default"),
        ("runai exec nosuch ls", 1, "The job: 'nosuch' is not found"),
        ("runai exec trainer --pod workr-0 ls", 1, "Failed to find pod: 'workr-0' of job: 'trainer'"),
        ("rowlock exec trainer", 2, "needs a job and a command"),
        ("rowlock exec trainer --rank 7 -- ls", 1, "trainer has no rank 7; it has rank 0, rank 1."),
        ("rowlock exec trainer --rank 0 --pod worker-0 -- ls", 2, "give one of them"),
        ("rowlock exec alone --rank 0 -- ls", 1, "The job alone does not exist"),
        ("rowlock exec trainer -c other -- ls", 1, "trainer-master-0 has no container other: it has pytorch"),
        ("rowlock exec trainer -- no-such-program", 1, 'exec: "no-such-program": executable file not found in $PATH'),
        ("rowlock exec trainer --comand ls", 2, "unknown flag: --comand"),
        ("rowlock port-forward trainer", 2, "needs a job and ports"),
        ("runai port-forward trainer --port 80:none", 2, '"80:none" is not a pair of ports'),
    ],
)
def test_what_cannot_be_is_one_sentence(inside: Cluster, argv: str, code: int, text: str) -> None:
    got, _, said = entered(inside, *argv.split())
    assert got == code and text in said and "Traceback" not in said


def test_a_shell_on_ones_own_terminal(inside: Cluster) -> None:
    terminal = Terminal(inside, "runai", "bash", "trainer")
    terminal.hear(b"# " if os.geteuid() == 0 else b"$ ")
    terminal.type(b"tty; echo rank=$RANK $((40 + 2))\n")
    terminal.hear(b"rank=0 42")
    terminal.type(b"exit 6\n")
    assert terminal.end() == 6


def test_attach_hears_the_program(inside: Cluster) -> None:
    with forwarded(inside, "rowlock", "attach", "trainer") as attached:
        assert attached.stderr is not None
        assert attached.stderr.readline() == b"Connecting to pod trainer-master-0\n"


@contextmanager
def forwarded(cluster: Cluster, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that goes on until it is stopped."""
    process = subprocess.Popen(argv, env=cluster.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.parametrize(
    "argv",
    [
        "rowlock port-forward trainer --port :8099",
        "runai port-forward trainer --port 0:8099 --address 127.0.0.1",
        "kubectl port-forward pod/trainer-master-0 :8099",
        "env KUBECTL_PORT_FORWARD_WEBSOCKETS=false kubectl port-forward pod/trainer-master-0 :8099",
    ],
)
def test_a_forwarded_port_serves_again_and_again(inside: Cluster, argv: str) -> None:
    words = argv.split()
    if "kubectl" in words:
        words[words.index("kubectl")] = kubectl() or pytest.skip(missing())
    with forwarded(inside, *words) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        found = re.search(r"127\.0\.0\.1:(\d+) -> 8099", line)
        assert found, line
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/index.txt", timeout=200) as page:
                assert page.read() == b"hello from 0\n"


@pytest.mark.parametrize("websockets", ["true", "false"])
def test_kubectl_copies_and_runs(inside: Cluster, tmp_path: Path, websockets: str) -> None:
    """Without websockets it speaks as all kubectls before 1.30 did."""
    program = kubectl() or pytest.skip(missing())
    inside = Cluster(inside.data, {**inside.env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": websockets})
    (tmp_path / "up").write_bytes(os.urandom(200_000))
    inside.run(program, "cp", str(tmp_path / "up"), f"alone:{tmp_path}/there")
    inside.run(program, "cp", f"alone:{tmp_path}/there", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == (tmp_path / "up").read_bytes()
    flags = ("--image=rowlock.dev/host", "--restart=Never", "--rm", "-i", "--quiet", "--command", "--", "sort")
    code, out, said = entered(inside, program, "run", "sorter", *flags, given=b"b\na\n")
    assert (code, out) == (0, "a\nb\n"), said
