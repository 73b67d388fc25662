"""`rowlock notebook`: what it submits, what it refuses, and the way to it. A small HTTP server stands for JupyterLab."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.end_to_end.cluster import BIN, Cluster, lent
from tests.rest.served import Served

from rowlock import kinds, objects
from rowlock.cli.notebook import command

FAKE_LAB = """
import http.server, os
class Lab(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path == "/api" or self.path.endswith("token=" + os.environ["JUPYTER_TOKEN"])
        self.send_response(200 if ok else 403); self.end_headers(); self.wfile.write(os.getcwd().encode())
    def log_message(self, *args): pass
http.server.HTTPServer(("0.0.0.0", int(os.environ["JUPYTER_PORT"])), Lab).serve_forever()
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a module `jupyterlab`, which the interpreter of the tests has not."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "jupyterlab.py").write_text(FAKE_LAB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lab"))
    monkeypatch.delenv("JUPYTER_TOKEN", raising=False)
    return tmp_path


def test_an_interpreter_without_jupyterlab_is_named(served: Served, tmp_path: Path) -> None:
    served.node("a")
    code, _, err = served.run(f"rowlock notebook --python {sys.executable}")
    assert code == 1 and f"{sys.executable} has no JupyterLab: `{sys.executable} -m pip install jupyterlab`" in err
    code, _, err = served.run("rowlock notebook --python no-such-python")
    assert code == 2 and "there is no interpreter no-such-python on your PATH" in err
    assert list(served.store.view.all(kinds.PYTORCHJOB)) == []
    assert "`rowlock notebook`" in served.run("rowlock jupyter")[2]


def test_it_is_a_workspace_whose_token_is_in_a_secret(
    served: Served, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.node("a", 2)
    monkeypatch.setattr(command, "wait_for_start", lambda *args: None)
    monkeypatch.setattr(command, "_open_way", lambda *args: 0)
    served.ok(f"rowlock notebook --python {sys.executable} -g 1 --memory 1Gi --working-dir {lab}")
    (job,) = served.store.view.all(kinds.PYTORCHJOB)
    assert served.ok("rowlock list --json").count('"type": "Workspace"') == 1
    container = objects.dig(job, "spec.pytorchReplicaSpecs.Master.template.spec.containers")[0]
    assert container["command"][:3] == [sys.executable, "-m", "jupyterlab"] and container["workingDir"] == str(lab)
    assert container["resources"]["limits"]["nvidia.com/gpu"] in (1, "1")
    assert "JUPYTER_TOKEN" not in str(job), "the token is in a Secret alone"
    served.ok(f"rowlock notebook --python {sys.executable}")
    assert len(list(served.store.view.all(kinds.PYTORCHJOB))) == 1, "it is found again"
    served.ok("rowlock run -d --clean-env --name train -- python")
    assert "train is a job, not a notebook" in served.run(f"rowlock notebook train --python {sys.executable}")[2]


@pytest.mark.parametrize(
    ("answer", "is_ready"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n", False),
        (b"220 this is mail\r\n", False),
        (b"", False),
    ],
)
def test_it_is_asked_directly_and_an_odd_answer_is_none(
    answer: bytes, is_ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the shell was asked for the local port, and a program that speaks no HTTP ended the command with a traceback."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        program = threading.Thread(target=serve)
        program.start()
        assert command._is_ready(listener.getsockname()[1]) == is_ready
        program.join()


def test_the_address_leads_to_it_and_ctrl_c_leaves_it_running(lab: Path) -> None:
    home = lab / "home"
    home.mkdir()
    with lent(home) as cluster:
        cluster.up()
        address = open_and_interrupt(cluster, lab)
        assert "/lab?token=" in address
        assert "Running" in cluster.run("rowlock", "list")
        assert open_and_interrupt(cluster, lab).partition("token=")[2] == address.partition("token=")[2]


def open_and_interrupt(cluster: Cluster, lab: Path) -> str:
    argv = [str(BIN / "rowlock"), "notebook", "--python", sys.executable]
    environment = {**cluster.env, "PYTHONPATH": str(lab / "lab")}
    with subprocess.Popen(argv, cwd=lab, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        address = program.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=200) as answer:
            assert answer.read().decode() == str(lab)
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(address.partition("?")[0], timeout=200)
        refusal.value.close()
        program.send_signal(signal.SIGINT)
        assert program.wait(90) == 0
    return address
