"""A PaddleJob's two workers as Paddle's launcher starts them: the second calls a web server of the first, by name and by address, with
clients that take proxies from the environment."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.end_to_end.cluster import Cluster

LAUNCHER = """
import http.server, os, socket, threading, time, urllib.error, urllib.request
import httpx

name, _, port = os.environ["PADDLE_MASTER"].rpartition(":")
met = threading.Event()

class Keys(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from " + self.client_address[0].encode())
        if self.path == "/done":
            met.set()
    def log_message(self, *_):
        pass

def ask(url):
    while True:  # the master's server may begin after this
        try:
            return urllib.request.urlopen(url, timeout=30).read().decode()
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError):
                raise
            time.sleep(0.2)

if socket.gethostname().endswith("-0"):
    server = http.server.ThreadingHTTPServer(("", int(port)), Keys)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    assert met.wait(100)
else:
    for host in (name, socket.gethostbyname(name)):
        url = f"http://{host}:{port}/"
        print("urllib", ask(url), flush=True)
        print("httpx", httpx.get(url).text, flush=True)
    print(ask(f"http://{name}:{port}/done"), flush=True)
"""


def test_the_second_worker_reaches_the_first(cluster: Cluster, tmp_path: Path) -> None:
    cluster.up()
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    command = [sys.executable, str(tmp_path / "launcher.py")]
    container = {"name": "paddle", "image": "rowlock.dev/host", "command": command}
    worker = {"replicas": 2, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "two"},
        "spec": {"paddleReplicaSpecs": {"Worker": worker}},
    }
    cluster.api("POST", "/apis/kubeflow.org/v1/namespaces/runai-default/paddlejobs", body)
    cluster.run("rowlock", "wait", "two", "--timeout", "200s", code=None)
    said = cluster.run("rowlock", "logs", "two")
    address = cluster.api("GET", "/api/v1/namespaces/runai-default/pods/two-worker-1")["status"]["podIP"]
    assert said.count(f"urllib from {address}") == said.count(f"httpx from {address}") == 2, said
    assert "Completed" in cluster.run("rowlock", "list")
