"""The part of a kubelet's API that an API server asks for logs: what a test says that pods have written."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


class PlayedKubelet:
    """`logs` by pod: lines that begin with their time; the followed log of a pod in `endless` does not end."""

    def __init__(self) -> None:
        self.logs: Mapping[str, list[str]] = {}
        self.endless: set[str] = set()
        self.over = threading.Event()
        self.port = 0

    @property
    def address(self) -> Mapping[str, Any]:
        """What a node says of where its kubelet listens, a part of its status."""
        return {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }

    def has_log(self, pod: str, query: Mapping[str, list[str]]) -> bool:
        return pod in self.logs or query.get("previous") != ["true"]

    def lines(self, pod: str, query: Mapping[str, list[str]]) -> list[bytes]:
        """As `kubectl logs` asks for them: the last ones, with their times or without."""
        found = list(self.logs.get(pod, ()))
        if "tailLines" in query:
            count = int(query["tailLines"][0])
            found = found[-count:] if count else []
        is_timed = query.get("timestamps") == ["true"]
        return [(line if is_timed else line.partition(" ")[2]).encode() + b"\n" for line in found]


def _handler(kubelet: PlayedKubelet) -> type[BaseHTTPRequestHandler]:
    class Asked(BaseHTTPRequestHandler):
        """`/containerLogs/NAMESPACE/POD/CONTAINER`."""

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            words, query = url.path.strip("/").split("/"), parse_qs(url.query)
            is_log = len(words) == 4 and words[0] == "containerLogs" and kubelet.has_log(words[2], query)
            self.send_response(200 if is_log else 404)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            if not is_log:
                return
            for line in kubelet.lines(words[2], query):
                self.wfile.write(line)
            self.wfile.flush()
            if query.get("follow") == ["true"] and words[2] in kubelet.endless:
                kubelet.over.wait()

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    return Asked


@contextmanager
def played_kubelet(keys: Path) -> Iterator[PlayedKubelet]:
    """On a free port of loopback, with the certificate `server` of a directory: an API server asks nobody whose it is."""
    kubelet = PlayedKubelet()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(kubelet))
    server.daemon_threads = True
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    kubelet.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kubelet
    finally:
        kubelet.over.set()
        server.shutdown()
        server.server_close()
        thread.join(200)
