"""A reverse proxy between a browser and the UI, as people put one before it: below a path, and over a network that may go silent."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import NamedTuple

HEAD_END = b"\r\n\r\n"


class Request(NamedTuple):
    """What a browser asked, before the path was rewritten."""

    path: str
    headers: dict[str, str]


class Proxy:
    """Serves a port of this machine below `prefix`; whoever asks elsewhere gets 404. Each connection has threads of its own."""

    def __init__(self, upstream: int, prefix: str = "") -> None:
        self.prefix, self._upstream = prefix, upstream
        self.requests: list[Request] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = {self._listener}
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def outside(self) -> list[str]:
        """What was asked elsewhere than below the prefix."""
        return [request.path for request in self.requests if not request.path.startswith(self.prefix + "/")]

    def fall_silent(self) -> None:
        """Nothing gets through from now on, and nobody is told: connections stay open."""
        self._flowing.clear()

    def speak(self) -> None:
        """What is sent gets through again."""
        self._flowing.set()

    def close(self) -> None:
        """Close every connection."""
        self._flowing.set()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        with suppress(OSError), client:
            received = b""
            while HEAD_END not in received:
                if not (piece := client.recv(65536)):
                    return
                received += piece
            head, _, rest = received.partition(HEAD_END)
            rewritten = self._rewrite(head)
            self._flowing.wait()
            if rewritten is None:
                client.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", self._upstream)) as server:
                self._open.add(server)
                server.sendall(rewritten + HEAD_END + rest)
                threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
                self._pump(server, client)

    def _rewrite(self, head: bytes) -> bytes | None:
        """The request without the prefix, and, if it is no websocket, the last one of its connection; None for one elsewhere."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, version = first.split(" ")
        pairs = [line.partition(": ") for line in lines]
        headers = {name.lower(): value for name, _, value in pairs}
        self.requests.append(Request(path, headers))
        if not path.startswith(self.prefix + "/"):
            return None
        if "upgrade" not in headers:
            lines = [line for line in lines if not line.lower().startswith("connection:")] + ["connection: close"]
        return "\r\n".join([f"{method} {path.removeprefix(self.prefix)} {version}", *lines]).encode("latin-1")

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                self._flowing.wait()
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
