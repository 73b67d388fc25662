"""exec, attach and port-forward with the official Python client: real websockets, real programs."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.conformance.subjects import embedded_server
from tests.processes import running
from tests.waiting import PATIENCE, until

ECHO = """
import socket, threading
server = socket.create_server(("127.0.0.1", 7007))
print("serving", flush=True)
def serve(one):
    while data := one.recv(65536):
        one.sendall(data.upper())
    one.sendall(b"<end>")
    one.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""


@dataclass
class Place:
    """A cluster with a node, seen through the official client."""

    core: Any
    data: Path
    namespace: str = "runai-default"

    def start(self, name: str, *command: str, spec: dict[str, Any] | None = None, **container: Any) -> str:
        """A pod that runs, or has run; its name."""
        main = {"name": "main", "image": "rowlock.dev/host", "command": list(command), **container}
        body = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [main], **(spec or {})}}
        self.core.create_namespaced_pod(self.namespace, body)
        until(lambda: self.pod(name).status.phase in ("Running", "Succeeded"), f"{name} to run")
        return name

    def pod(self, name: str) -> Any:
        return self.core.read_namespaced_pod(name, self.namespace)

    def delete(self, name: str) -> None:
        self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)

    def inside(self, pod: str, *command: str, **options: Any) -> AbstractContextManager[Any]:
        """A client of `exec`."""
        return self._stream(self.core.connect_get_namespaced_pod_exec, pod, command=list(command), **options)

    def attached(self, pod: str, **options: Any) -> AbstractContextManager[Any]:
        """A client of `attach`."""
        return self._stream(self.core.connect_get_namespaced_pod_attach, pod, **options)

    @contextmanager
    def _stream(self, connect: Any, pod: str, **options: Any) -> Iterator[Any]:
        stream = pytest.importorskip("kubernetes.stream").stream
        options = {"stdin": False, "stdout": True, "stderr": True, "tty": False, **options}
        client = stream(connect, pod, self.namespace, _preload_content=False, **options)
        try:
            yield client
        finally:
            client.close()
            client.sock.shutdown()  # it leaves its socket open when the server said goodbye first

    def said(self, pod: str, *command: str) -> str:
        """What a command in the pod prints."""
        with self.inside(pod, *command) as client:
            client.run_forever(timeout=PATIENCE)
            assert client.returncode == 0
            return str(client.read_channel(1))

    def forward(self, pod: str, *ports: int) -> Any:
        portforward = pytest.importorskip("kubernetes.stream").portforward
        connect = self.core.connect_get_namespaced_pod_portforward
        return portforward(connect, pod, self.namespace, ports=",".join(map(str, ports)))

    @property
    def url(self) -> str:
        return str(self.core.api_client.configuration.host)

    @property
    def server(self) -> psutil.Process:
        return psutil.Process(json.loads((self.data / "server.json").read_text())["pid"])


@contextmanager
def connected(data: Path) -> Iterator[Place]:
    """A client of its own; nothing of it stays open."""
    kubernetes = pytest.importorskip("kubernetes")
    with kubernetes.config.new_client_from_config(str(data / "kubeconfig")) as api:
        try:
            yield Place(kubernetes.client.CoreV1Api(api), data)
        finally:
            api.rest_client.pool_manager.clear()


def heard(client: Any, text: str) -> None:
    """Waits until the client has been told `text` on stdout."""
    found = ""
    end = time.monotonic() + PATIENCE
    while text not in found:
        assert time.monotonic() < end and client.is_open(), f"never heard {text!r}, only {found!r}"
        client.update(timeout=0.2)
        found += client.read_channel(1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    pytest.importorskip("kubernetes", reason="the official Python client (kubernetes) is not installed")
    where = tmp_path_factory.mktemp("streaming")
    flags = ("--network", "rewrite", "--cpus-per-node", "64")
    with embedded_server(where, "rowlock.serve", *flags):
        with connected(where) as made:
            try:
                yield made
            finally:
                made.core.delete_collection_namespaced_pod(made.namespace, grace_period_seconds=0)
                until(lambda: not made.core.list_namespaced_pod(made.namespace).items, "all pods to be gone")
    assert "upgrade" not in (where / "output").read_text().lower()


@pytest.fixture(scope="module")
def shell(place: Place) -> str:
    return place.start("shell", "sleep", "100000", env=[{"name": "COLOR", "value": "blue"}])


def test_exec_has_the_pods_environment_and_both_outputs(place: Place, shell: str) -> None:
    with place.inside(shell, "sh", "-c", "echo $COLOR $ROWLOCK_POD_UID; echo oops >&2; exit 5") as client:
        client.run_forever(timeout=PATIENCE)
        assert client.read_channel(1) == f"blue {place.pod(shell).metadata.uid}\n"
        assert client.read_channel(2) == "oops\n"
        status = json.loads(client.read_channel(3))
    assert status["reason"] == "NonZeroExitCode" and status["status"] == "Failure"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "5"}]
    assert status["message"] == "command terminated with non-zero exit code: command terminated with exit code 5"


def test_exec_takes_input(place: Place, shell: str) -> None:
    with place.inside(shell, "sh", "-c", "read a; echo got $a; exit 3", stdin=True) as client:
        client.write_stdin("this\n")
        client.run_forever(timeout=PATIENCE)
        assert (client.returncode, client.read_channel(1)) == (3, "got this\n")


def test_a_terminal_has_the_size_of_the_clients(place: Place, shell: str) -> None:
    with place.inside(shell, "sh", stdin=True, stderr=False, tty=True) as client:
        client.write_channel(4, json.dumps({"Width": 99, "Height": 33}))
        client.write_stdin("stty size; echo $TERM; tty; exit 4\n")
        client.run_forever(timeout=PATIENCE)
        assert client.returncode == 4
        said = client.read_channel(1)
    assert "33 99" in said and "xterm" in said and "not a tty" not in said


def test_a_signal_in_a_terminal_reaches_the_program(place: Place, shell: str) -> None:
    script = "trap 'echo interrupted; exit 7' INT; echo ready; while true; do sleep 0.05; done"
    with place.inside(shell, "sh", "-c", script, stdin=True, stderr=False, tty=True) as client:
        heard(client, "ready")
        client.write_stdin("\x03")
        client.run_forever(timeout=PATIENCE)
        assert client.returncode == 7


UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
KEY = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}
V4 = {"Sec-WebSocket-Protocol": "v4.channel.k8s.io"}


def refused(place: Place, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, str]:
    """What a client reads whose websocket is not accepted: the code and the Status' message."""
    token = (place.data / "token").read_text().strip()
    tls = ssl.create_default_context(cafile=str(place.data / "ca.crt"))
    sent = {"Authorization": f"Bearer {token}", **headers}
    answer = httpx.request(method, f"{place.url}{path}", headers=sent, verify=tls, timeout=PATIENCE)
    return answer.status_code, answer.json()["message"]


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("nobody/exec?command=true&stdout=1", 404, 'pods "nobody" not found'),
        ("shell/exec?command=true&stdout=1&container=other", 400, "container other is not valid for pod shell"),
        ("shell/exec?command=true", 400, "at least one of stdin, stdout, stderr must be true"),
        ("shell/exec?command=true&stdout=1&stderr=1&tty=1", 400, "tty and stderr cannot both be true"),
        ("shell/exec?stdout=1", 400, "you must specify at least one command for the container"),
        ("shell/exec?command=true&stdout=1&stdot=1", 400, 'unknown query parameter "stdot"'),
        ("shell/portforward?ports=0", 400, 'unable to parse "0" as a port'),
        ("shell/portforward?ports=70000", 400, "between 1 and 65535"),
        ("shell/portforward", 400, '"ports" is required'),
        ("shell/log", 404, "could not find the requested resource"),
    ],
)
def test_what_cannot_be_entered(place: Place, shell: str, path: str, code: int, text: str) -> None:
    got, said = refused(place, f"/api/v1/namespaces/{place.namespace}/pods/{path}", {**UPGRADE, **KEY, **V4})
    assert got == code and text in said


@pytest.mark.parametrize(
    ("headers", "method", "code", "text"),
    [
        (
            {**UPGRADE, **KEY, "Sec-WebSocket-Protocol": "v9.channel.k8s.io"},
            "GET",
            400,
            "needs a Sec-WebSocket-Protocol of v5.channel.k8s.io or v4.channel.k8s.io, not v9.channel.k8s.io",
        ),
        ({**UPGRADE, **KEY, **V4, "Authorization": "Bearer wrong"}, "GET", 401, "Unauthorized"),
        ({}, "POST", 400, "Upgrade request required"),
        ({"Connection": "Upgrade", "Upgrade": "h2c"}, "POST", 405, "websockets and SPDY/3.1 are spoken here, not h2c"),
        (
            {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"},
            "POST",
            400,
            "X-Stream-Protocol-Version of v4.channel.k8s.io",
        ),
    ],
)
def test_who_cannot_enter(place: Place, shell: str, headers: dict[str, str], method: str, code: int, text: str) -> None:
    path = f"/api/v1/namespaces/{place.namespace}/pods/shell/exec?command=true&stdout=1"
    got, said = refused(place, path, headers, method)
    assert got == code and text in said


def test_a_program_that_is_not_there(place: Place, shell: str) -> None:
    with place.inside(shell, "no-such-program") as client:
        client.run_forever(timeout=PATIENCE)
        status = json.loads(client.read_channel(3))
    assert status["reason"] == "InternalError"
    assert status["message"].endswith('exec: "no-such-program": executable file not found in $PATH')


def test_a_pod_that_has_ended_cannot_be_entered(place: Place) -> None:
    place.start("brief", "sleep", "0.5")
    until(lambda: place.pod("brief").status.phase == "Succeeded", "brief to end")
    path = f"/api/v1/namespaces/{place.namespace}/pods/brief"
    code, text = refused(place, f"{path}/exec?command=true&stdout=1", {**UPGRADE, **KEY, **V4})
    assert (code, text) == (500, 'container not found ("main")')
    code, text = refused(place, f"{path}/portforward?ports=80", {**UPGRADE, **KEY, **V4})
    assert (code, text) == (400, "unable to forward port because pod is not running. Current status=Succeeded")


def test_twenty_at_once(place: Place, shell: str) -> None:
    def one(number: int) -> str:
        with connected(place.data) as mine:
            return mine.said(shell, "sh", "-c", f"sleep 0.5; seq 1 2000 | tail -1; echo {number}")

    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(one, range(20))) == sorted(f"2000\n{n}\n" for n in range(20))


def test_a_slow_reader_stops_the_program_and_costs_no_memory(place: Place, shell: str, tmp_path: Path) -> None:
    size, piece = 64 << 20, 1 << 16
    script = f"i=0; while [ $i -lt {size // piece} ]; do head -c {piece} /dev/zero; i=$((i+1)); echo $i > {tmp_path}/at; done"
    before = place.server.memory_info().rss
    with place.inside(shell, "sh", "-c", script, binary=True) as client:
        until((tmp_path / "at").exists, "the first bytes")

        def stands_still() -> bool:
            at = (tmp_path / "at").read_text()
            time.sleep(0.5)
            return bool(at) and (tmp_path / "at").read_text() == at

        until(stands_still, "the program to wait for its reader")
        assert int((tmp_path / "at").read_text()) * piece < size // 2
        assert place.server.memory_info().rss - before < 16 << 20
        got = 0
        while client.is_open():
            client.update(timeout=1)
            got += len(client.read_channel(1))
        assert got == size and client.returncode == 0


def test_a_client_that_goes_takes_its_program_along(place: Place, shell: str) -> None:
    mark = f"5000.{os.getpid()}"
    with place.inside(shell, "sh", "-c", f"sleep {mark} & echo begun; wait") as client:
        client.update(timeout=PATIENCE)
        until(lambda: client.peek_stdout() or client.update(timeout=1), "its word")
        until(lambda: running("sleep", mark), "what it left in the background")
    until(lambda: not running("sleep", mark), "the program of a client that has gone to end")


def test_what_exec_leaves_running_ends_with_the_pod(place: Place) -> None:
    place.start("host", "sleep", "100000")
    mark = f"5001.{os.getpid()}"
    place.said("host", "sh", "-c", f"sleep {mark} >/dev/null 2>&1 & echo begun")
    place.said("host", "sh", "-c", f"sleep {mark} & echo begun")  # keeps our end of its stdout open
    until(lambda: len(running("sleep", mark)) == 2, "both to run: a shell goes on before its child is the program")
    with place.inside("host", "sleep", "5000") as client:
        place.delete("host")
        client.run_forever(timeout=PATIENCE)
        assert client.returncode == 137
    until(lambda: not running("sleep", mark), "what ran in the pod to end")


def test_attach_hears_what_is_said_from_now_on(place: Place) -> None:
    place.start("teller", "sh", "-c", "echo before; while sleep 0.1; do echo tell; done")
    until(lambda: "tell" in place.core.read_namespaced_pod_log("teller", place.namespace), "the first words")
    with place.attached("teller") as client:
        until(lambda: client.peek_stdout() or client.update(timeout=1), "a word")
        assert set(client.read_channel(1).split()) == {"tell"}
    assert place.pod("teller").status.phase == "Running"


def test_attach_gives_a_pod_its_input_once(place: Place) -> None:
    place.start(
        "asker", "sh", "-c", "printf 'name? '; read a; echo hello $a; cat; echo over", stdin=True, stdinOnce=True
    )
    with place.attached("asker", stdin=True) as client:
        client.write_stdin("you\nmore\n")
        heard(client, "more")
    until(lambda: place.pod("asker").status.phase == "Succeeded", "asker to read its end of file")
    log = place.core.read_namespaced_pod_log("asker", place.namespace)
    assert log == "name? hello you\nmore\nover\n"


def test_attach_to_a_terminal(place: Place) -> None:
    place.start("typist", "sh", stdin=True, tty=True)
    with place.attached("typist", stdin=True, stderr=False, tty=True) as client:
        client.write_channel(4, json.dumps({"Width": 81, "Height": 25}))
        client.write_stdin("stty size; echo t$((1+1)); exit 6\n")
        heard(client, "t2")
        client.run_forever(timeout=PATIENCE)
    until(lambda: place.pod("typist").status.phase == "Failed", "typist to end")
    assert "25 81" in place.core.read_namespaced_pod_log("typist", place.namespace)
    assert place.pod("typist").status.container_statuses[0].state.terminated.exit_code == 6


@pytest.fixture(scope="module")
def echoing(place: Place) -> str:
    name = place.start("echoing", "python3", "-c", ECHO)
    until(lambda: "serving" in place.core.read_namespaced_pod_log(name, place.namespace), "the echo server")
    return name


def exchanged(connection: socket.socket, data: bytes) -> bytes:
    connection.setblocking(True)
    connection.settimeout(PATIENCE)
    writing = threading.Thread(target=connection.sendall, args=(data,))
    writing.start()
    found = b""
    while len(found) < len(data):
        piece = connection.recv(1 << 16)
        if not piece:
            break
        found += piece
    writing.join()
    return found


def test_bytes_go_through_a_forwarded_port_both_ways(place: Place, echoing: str) -> None:
    forwarded = place.forward(echoing, 7007)
    with closing(forwarded.socket(7007)) as connection:
        data = os.urandom(1 << 20).hex().encode()
        assert exchanged(connection, data) == data.upper()
    assert forwarded.error(7007) is None


def test_a_port_where_nobody_listens(place: Place, echoing: str) -> None:
    forwarded = place.forward(echoing, 7007, 7)
    with closing(forwarded.socket(7)), closing(forwarded.socket(7007)) as connection:
        assert exchanged(connection, b"still here") == b"STILL HERE"
        until(lambda: forwarded.error(7), "the sentence about port 7")
        text = forwarded.error(7)
    assert text.startswith(f"error forwarding port 7 to pod {echoing}, uid ") and text.endswith("connection refused")


def test_kr8s_goes_in_and_through(place: Place, echoing: str) -> None:
    kr8s = pytest.importorskip("kr8s", reason="kr8s is not installed")
    objects = pytest.importorskip("kr8s.objects")
    api = kr8s.api(kubeconfig=str(place.data / "kubeconfig"), namespace=place.namespace)
    pod = objects.Pod.get(echoing, api=api)
    done = pod.exec(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"out\n", b"err\n", 3)
    with socket.socket() as free:  # "auto" is a guess that some connection of ours may have
        free.bind(("127.0.0.1", 0))
        local = free.getsockname()[1]
    with pod.portforward(7007, local_port=local) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        assert exchanged(connection, b"through kr8s") == b"THROUGH KR8S"
