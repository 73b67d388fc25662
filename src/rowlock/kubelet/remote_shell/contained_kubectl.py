"""The `kubectl exec` of an MPIJob's launcher that runs in a container: mpirun starts its daemons in the workers with it.

The launcher's init container writes this text to /opt/kube/kubectl, and the image's own Python runs it: no rowlock is there. It asks the API
server with the token of the launcher's account. Standard library only, for Python 3.7 and later.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from typing import Any

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PATIENCE = 60.0
"""Seconds that a worker may take to start: a launcher does not wait for its workers."""
STREAMS = ("error", "stdin", "stdout", "stderr")
"""Names of the streams, which the client opens; their numbers in the connection are 1, 3, 5, 7."""
STATUS, STDIN, STDOUT, STDERR = 1, 3, 5, 7
OUTPUTS = {STDOUT: 1, STDERR: 2}
"""Stream → descriptor."""
SYN_STREAM, LAST = 1, 1
"""A frame's type, and the flag of the last data of a stream."""
USAGE = "this kubectl knows only `exec POD [--container NAME] -- COMMAND`: rowlock made it for mpirun"


class ExecStreams:
    """SPDY/3.1 as kubectl speaks it: an account may `create` pods/exec, and a WebSocket would need `get`. One thread reads and writes,
    for a TLS connection of Python is not made for two."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection, self._received = connection, b""
        self._takes_input = sys.stdin is not None  # None: descriptor 0 is closed
        compressor = zlib.compressobj()
        for place, name in enumerate(STREAMS):
            words = (b"streamtype", name.encode())
            plain = struct.pack(">I", 1) + b"".join(struct.pack(">I", len(word)) + word for word in words)
            block = compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)
            body = struct.pack(">IIH", 2 * place + 1, 0, 0) + block
            connection.sendall(struct.pack(">II", 0x80030000 | SYN_STREAM, len(body)) + body)

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        """(stream, bytes) as they come, until the connection ends. Meanwhile our own input is sent."""
        while True:
            inputs: list[Any] = [self._connection, 0] if self._takes_input else [self._connection]
            ready = [self._connection] if self._connection.pending() else select.select(inputs, [], [])[0]
            if 0 in ready:
                self._send_input()
            if self._connection in ready:
                piece = self._connection.recv(1 << 16)
                if not piece:
                    return
                self._received += piece
                yield from self._data_frames()

    def _data_frames(self) -> Iterator[tuple[int, bytes]]:
        """Of the frames that have been received whole, those that carry data."""
        while len(self._received) >= 8:
            stream, size = struct.unpack(">II", self._received[:8])
            end = 8 + (size & 0xFFFFFF)
            if len(self._received) < end:
                return
            data, self._received = self._received[8:end], self._received[end:]
            if not stream >> 31 and data:
                yield stream, data

    def _send_input(self) -> None:
        try:
            piece = os.read(0, 1 << 14)
        except OSError:
            piece = b""
        self._takes_input = bool(piece)
        self._connection.sendall(struct.pack(">II", STDIN, (0 if piece else LAST) << 24 | len(piece)) + piece)


def read_account(name: str) -> str:
    with open(f"{ACCOUNT}/{name}") as file:
        return file.read().strip()


def find_container(tls: ssl.SSLContext, server: str, path: str, wanted: str) -> str:
    """The container's name, as soon as the pod runs."""
    deadline = time.monotonic() + PATIENCE
    while True:
        asked = urllib.request.Request(server + path, headers={"Authorization": "Bearer " + read_account("token")})
        try:
            with urllib.request.urlopen(asked, context=tls, timeout=PATIENCE) as answer:
                pod = json.loads(answer.read().decode())
            if pod["status"].get("phase") == "Running":
                return wanted or pod["spec"]["containers"][0]["name"]
            said = "it is " + str(pod["status"].get("phase"))
        except urllib.error.HTTPError as error:
            said = json.loads(error.read().decode()).get("message", str(error))
        if time.monotonic() > deadline:
            raise SystemExit(f"error: the pod at {path} has not run for {PATIENCE:.0f} s: {said}")
        time.sleep(0.2)


def open_streams(tls: ssl.SSLContext, host: str, port: int, path: str) -> ExecStreams:
    connection = tls.wrap_socket(socket.create_connection((host, port)), server_hostname=host)
    lines = [
        f"POST {path} HTTP/1.1", f"Host: {host}:{port}", "Connection: Upgrade", "Upgrade: SPDY/3.1", "Content-Length: 0",
        "X-Stream-Protocol-Version: v4.channel.k8s.io", "Authorization: Bearer " + read_account("token"),
    ]  # fmt: skip
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        if not piece:
            break
        head += piece
    if b" 101 " not in head.split(b"\r\n", 1)[0]:
        raise SystemExit("error: " + (head + connection.recv(4096)).decode("utf-8", "replace"))
    return ExecStreams(connection)


def exit_code(status: dict[str, Any]) -> int:
    """The program's exit code, from the Status of its end."""
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    sys.stderr.write(f"error: {status.get('message')}\n")
    return 1


def main(line: list[str]) -> int:
    flags, command = (line[: line.index("--")], line[line.index("--") + 1 :]) if "--" in line else ([], [])
    if len(flags) not in (2, 4) or flags[0] != "exec" or (flags[2:] and flags[2] not in ("-c", "--container")):
        raise SystemExit(USAGE)
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    tls = ssl.create_default_context(cafile=ACCOUNT + "/ca.crt")
    path = f"/api/v1/namespaces/{read_account('namespace')}/pods/{flags[1]}"
    container = find_container(tls, f"https://{host}:{port}", path, "".join(flags[3:]))
    query = [("command", word) for word in command] + [("container", container)]
    query += [(stream, "true") for stream in ("stdin", "stdout", "stderr")]
    streams = open_streams(tls, host, port, path + "/exec?" + urllib.parse.urlencode(query))
    status = b""
    for stream, data in streams.pieces():
        if stream == STATUS:
            status += data
            try:
                return exit_code(json.loads(status.decode()))
            except (ValueError, RecursionError):
                continue  # it comes in several frames
        while data and stream in OUTPUTS:
            data = data[os.write(OUTPUTS[stream], data) :]
    sys.stderr.write(f"error: the connection to pod {flags[1]} has ended\n")
    return 137


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
