"""The stand-ins for sshd and ssh, as real programs that talk to each other over loopback."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from rowlock.kubelet.remote_shell import client, protocol

SHELL = "rowlock.kubelet.remote_shell"
PATIENCE = 60


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "id_rsa"
    path.write_text("-----BEGIN EC PRIVATE KEY-----")
    return path


@pytest.fixture
def port(key: Path) -> Iterator[int]:
    """Where a server listens."""
    command = [sys.executable, "-P", "-m", f"{SHELL}.server", str(key), "0", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline().split()[3])
        finally:
            server.terminate()
    assert server.returncode == 0


def ssh_words(key: Path, port: int, *command: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"{SHELL}.client", str(key), "-x", "-o", "ConnectionAttempts=10", "-p", str(port), "me@localhost", *command]  # fmt: skip


def ssh(key: Path, port: int, *command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(ssh_words(key, port, *command), input=stdin, capture_output=True, timeout=PATIENCE)


def test_output_and_exit_code_of_a_command_come_back(key: Path, port: int) -> None:
    done = ssh(key, port, "echo one;", "echo two >&2;", "exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"one\n", b"two\n", 7)


def test_it_listens_where_it_is_told_and_nowhere_else(port: int) -> None:
    """A pod without a network of its own has every address of the machine."""
    socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=PATIENCE)


def test_input_of_any_size_and_bytes_goes_there_and_comes_back(key: Path, port: int) -> None:
    data = os.urandom(3 << 20)
    done = ssh(key, port, "cat", stdin=data)
    assert done.stdout == data
    assert done.returncode == 0


def test_a_command_that_reads_no_input_ends(key: Path, port: int) -> None:
    done = ssh(key, port, "echo read nothing", stdin=bytes(1 << 20))
    assert (done.stdout, done.returncode) == (b"read nothing\n", 0)


def test_what_runs_on_in_the_background_keeps_nobody_waiting(key: Path, port: int, tmp_path: Path) -> None:
    done = ssh(key, port, f"sleep 600 & echo $! > {tmp_path}/pid")
    assert done.returncode == 0
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_killed_command_ends_as_shells_say_it(key: Path, port: int) -> None:
    assert ssh(key, port, "kill -9 $$").returncode == 137


def test_another_key_opens_nothing(port: int, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("another key")
    done = ssh(other, port, f"touch {tmp_path}/opened")
    assert done.returncode == 255
    assert done.stderr == b"the client has another key than this job\n"
    assert not (tmp_path / "opened").exists()


def test_a_proof_is_good_for_one_connection_alone(key: Path, port: int, tmp_path: Path) -> None:
    """What one has overheard cannot be said again."""
    nonce = "00" * 16
    line = protocol.write_request(key.read_bytes(), nonce, f"touch {tmp_path}/opened")
    with socket.create_connection(("localhost", port)) as connection:
        protocol.receive_line(connection)
        connection.sendall(line)
        frames = list(protocol.receive_frames(connection))
    assert (protocol.EXIT, b"255") in frames
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize(
    "nonsense", [b"", b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"[" * 100_000 + b"\n", b'{"proof": 1}\n']
)
def test_strangers_and_probes_do_no_harm(key: Path, port: int, nonsense: bytes) -> None:
    with socket.create_connection(("localhost", port)) as connection:
        connection.sendall(nonsense)
        with contextlib.suppress(OSError):  # the server may have closed it with a reset
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass
    assert ssh(key, port, "true").returncode == 0


def test_a_command_ends_when_its_client_has_gone(key: Path, port: int, tmp_path: Path) -> None:
    words = ssh_words(key, port, f"echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep 600")
    with subprocess.Popen(words) as process:
        until((tmp_path / "pid").exists, "the command begins", PATIENCE)
        process.kill()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), "the command ends", PATIENCE)


def test_a_real_sshd_is_left_to_the_real_ssh(key: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "the real one: $@"\n')
    program.chmod(0o755)
    with socket.create_server(("localhost", 0)) as listener:
        threading.Thread(target=greet_as_sshd, args=(listener,), daemon=True).start()
        words = ssh_words(key, listener.getsockname()[1], "hostname")
        env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=PATIENCE)
    assert done.stdout.startswith("the real one: -x -o ConnectionAttempts=10 -p ")
    assert done.stdout.endswith("me@localhost hostname\n")


def greet_as_sshd(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")
        connection.recv(1)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (["-x", "host", "a", "b c"], ("host", "a b c", (2222, 22))),
        (["-q", "-o", "BatchMode=yes", "-p22", "me@host", "a"], ("host", "a", (22,))),
        (["-oPort=2022", "host", "a"], ("host", "a", (2022,))),
        (["--", "host", "a", "-p", "7"], ("host", "a -p 7", (2222, 22))),
    ],
)
def test_the_command_line_is_that_of_ssh(line: list[str], wanted: tuple[str, str, tuple[int, ...]]) -> None:
    assert client.parse(line) == wanted


@pytest.mark.parametrize("line", [["host"], [], ["-p", "none", "host", "a"], ["-Z", "host", "a"]])
def test_what_cannot_be_done_is_said(line: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"^ssh: "):
        client.parse(line)


def test_what_mpirun_of_open_mpi_4_calls_arrives_as_it_is() -> None:
    """As Open MPI 4.1.4 called `ssh` with the variables of Kubeflow Trainer: the shell in the node removes the quotes, not we."""
    words = [
        "-x", "-o", "ConnectionAttempts=10", "tj-node-0-0.tj", " orted", "-mca", "ess", '"env"', "-mca", "ess_base_vpid", "1",
        "-mca", "orte_node_regex", '"tj-launcher-[1:0]-0,tj-node-[1:0]-0.tj@0(2)"', "-mca", "orte_hnp_uri",
        '"870121472.0;tcp://10.98.77.1:42247;tcp6://[fd00::2]:39801"', "-mca", "plm_rsh_args", '"-o ConnectionAttempts=10"',
        "-mca", "pmix", '"^s1,s2,cray,isolated"',
    ]  # fmt: skip
    host, command, ports = client.parse(words)
    assert (host, ports) == ("tj-node-0-0.tj", (2222, 22))
    assert shlex.split(command)[:4] == ["orted", "-mca", "ess", "env"]
    assert "870121472.0;tcp://10.98.77.1:42247;tcp6://[fd00::2]:39801" in shlex.split(command)
    assert shlex.split(command)[-1] == "^s1,s2,cray,isolated"
