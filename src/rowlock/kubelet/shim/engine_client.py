"""The container engine of this machine (Docker, or Podman through its Docker-compatible socket), accessed over HTTP.

One request a connection, as HTTP/1.0, so that the end of the connection ends the answer, and a stream is the socket itself.
Standard library only, because shims use it (`engine_proxy.py`). `find_engine` looks where engines listen: a few `stat` calls on a
machine without one.
"""

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REQUEST_TIMEOUT = 30.0
"""Seconds for an answer; starting a container takes about 0.2 s."""
PROBE = 2.0
"""Seconds in which an engine must answer a ping."""
_CHUNK = 1 << 16


class EngineError(Exception):
    """The engine refused: its HTTP status and its message. Status 0: it does not answer."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine behind a unix socket. `name` is docker or podman."""

    path: str
    name: str = "docker"
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version} at {self.path}".replace("  ", " ")

    @property
    def spec(self) -> dict[str, str]:
        """The engine as a shim's request names it (`connect_engine`)."""
        return {"path": self.path, "name": self.name}

    def request(self, method: str, path: str, body: Any = None, timeout: float | None = REQUEST_TIMEOUT) -> Any:
        """Sends one request. Returns its answer's JSON, or None if it has none. Raises EngineError."""
        with self.open_stream(method, path, body, timeout)[0] as stream:
            try:
                text = b"".join(iter(lambda: stream.recv(_CHUNK), b""))
            except OSError as error:
                raise self.unreachable_error(error) from None
        with contextlib.suppress(ValueError):
            return json.loads(text)
        return None

    def open_stream(
        self, method: str, path: str, body: Any = None, timeout: float | None = REQUEST_TIMEOUT
    ) -> tuple["Stream", dict[str, str]]:
        """Sends one request. Returns the stream behind its answer's head, and the headers. Raises EngineError."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        content_type = "application/x-tar" if isinstance(body, bytes) else "application/json"
        request_bytes = request_head(method, path, {"Content-Type": content_type}, len(data))
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout)
            connection.connect(self.path)
            connection.sendall(request_bytes + data)
            status, headers, rest = _read_head(connection)
        except OSError as error:
            connection.close()
            raise self.unreachable_error(error) from None
        stream = Stream(connection, rest)
        if status >= 400:
            with stream:
                text = b"".join(iter(lambda: stream.recv(_CHUNK), b""))
            raise EngineError(status, error_message(text) or f"{method} {path}: {status}")
        return stream, headers

    def unreachable_error(self, error: OSError) -> EngineError:
        """The error for an engine that does not answer."""
        reason = "permission denied" if isinstance(error, PermissionError) else error.strerror or str(error)
        return EngineError(0, f"the container engine at {self.path} does not answer ({reason.lower()})")


def connect_engine(engine_socket: Mapping[str, str]) -> Engine:
    """The engine that a shim's request names (`Engine.spec`)."""
    return Engine(engine_socket["path"], engine_socket["name"])


class Stream:
    """A connection, and the bytes that were read from it together with the head."""

    def __init__(self, connection: socket.socket, buffered: bytes) -> None:
        self.socket, self._buffered = connection, buffered

    def recv(self, size: int) -> bytes:
        if self._buffered:
            piece, self._buffered = self._buffered[:size], self._buffered[size:]
            return piece
        return self.socket.recv(size)

    def take_buffered(self) -> bytes:
        """Takes the bytes that have been read already."""
        piece, self._buffered = self._buffered, b""
        return piece

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _read_head(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and the bytes read behind them. Raises OSError if it is not HTTP."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(_CHUNK)
        if not piece:
            raise ConnectionResetError("it hung up")
        data += piece
    response_head, _, rest = data.partition(b"\r\n\r\n")
    return *parse_response_head(response_head), rest


def request_head(method: str, path: str, headers: Mapping[str, str], length: int = 0) -> bytes:
    """The head of a request, up to its body."""
    lines = [f"{method} {path} HTTP/1.0", "Host: engine", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def parse_response_head(response_head: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers of an answer. Raises OSError if it is not HTTP."""
    status_line, *lines = response_head.decode("latin-1").strip().split("\r\n")
    words = status_line.split(" ")
    if not status_line.startswith("HTTP/") or not (words[1].isascii() and words[1].isdigit()):
        raise OSError(f"it does not speak HTTP: {status_line[:40]!r}")
    return int(words[1]), {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}


def error_message(answer: bytes) -> str:
    """Why the engine refused, from the body of its answer."""
    try:
        return str(json.loads(answer).get("message") or "").strip()
    except (ValueError, AttributeError, RecursionError):
        return answer.decode(errors="replace").strip()


# ---------------------------------------------------------------- finding one


def socket_paths(env: Mapping[str, str], uid: int) -> list[str]:
    """Possible paths of an engine's socket, the likeliest first. `DOCKER_HOST`, when it is set, is the only one."""
    if host := env.get("DOCKER_HOST"):
        return [host.removeprefix("unix://")] if host.startswith("unix://") else []
    runtime = env.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    home = env.get("HOME") or "/"
    own = [f"{runtime}/docker.sock", f"{home}/.docker/run/docker.sock", f"{runtime}/podman/podman.sock"]
    return ["/var/run/docker.sock", *own, "/run/podman/podman.sock"]


def has_socket(env: Mapping[str, str]) -> bool:
    """Whether there may be an engine: a quick look for its socket."""
    return any(os.path.exists(path) for path in socket_paths(env, os.getuid()))


def find_engine(env: Mapping[str, str]) -> tuple[Engine | None, str]:
    """The engine that answers here; else None and why there is none."""
    candidates = socket_paths(env, os.getuid())
    if not candidates:
        return None, f"DOCKER_HOST={env['DOCKER_HOST']} is no unix socket of this machine, which rowlock needs"
    failures = []
    for path in candidates:
        if not os.path.exists(path):
            continue
        try:
            return ping_engine(path), ""
        except EngineError as error:
            failures.append(str(error))
    return None, "; ".join(failures) or f"no container engine listens here (looked at {', '.join(candidates)})"


def ping_engine(path: str, timeout: float = PROBE) -> Engine:
    """Asks which engine listens there: `Docker/20.10.24 (linux)`, `Libpod/4.3.1 (linux)`. Raises EngineError."""
    stream, headers = Engine(path).open_stream("GET", "/_ping", timeout=timeout)
    stream.close()
    name, _, version = headers.get("server", "").partition(" ")[0].partition("/")
    return Engine(path, "podman" if name.lower() in ("libpod", "podman") else "docker", version)


if __name__ == "__main__":
    _engine, _reason = find_engine(os.environ)
    print(_engine or _reason)
    raise SystemExit(0 if _engine else 1)
