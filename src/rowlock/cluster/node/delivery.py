"""What stands for the image `kubectl-delivery` of an MPIJob: it puts a `kubectl` into $TARGET_DIR, which knows `exec`.

    python -m rowlock.cluster.node.delivery DATA_DIR                                      in the init container
    python -m rowlock.cluster.node.delivery DATA_DIR NAMESPACE exec POD [-c C] -- CMD…    in the launcher, by mpirun

mpirun starts its daemons in the workers through it. Pods cannot reach the API server, so it asks the pod host of this
machine, which starts the program in the worker's own container and namespaces. Standard library only.
"""

import contextlib
import json
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rowlock.cluster.node.console import short

PATIENCE = 60.0
"""Seconds that a worker may take to start."""
MAIN = "mpi"
USAGE = "this kubectl knows only `exec POD [--container NAME] -- COMMAND`: rowlock made it for mpirun"


def deliver(data: Path) -> int:
    """Writes the program that the launcher finds in /opt/kube."""
    target = Path(os.environ.get("TARGET_DIR", "/opt/kube"))
    call = [sys.executable, "-m", __spec__.name, str(data), os.environ.get("NAMESPACE", "default")]
    program = target / "kubectl"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(call)} "$@"\n')
    program.chmod(0o755)
    print(f"{program} stands for kubectl")
    return 0


def enter(data: Path, namespace: str, line: list[str]) -> int:
    """Runs a command in another pod; its exit code, or 1 with a sentence."""
    pod, container, command = _parsed(line)
    where, number = _running(data, namespace, pod, container)
    request = {"op": "enter", "argv": command, "tty": False, "dir": str(where), "n": number}
    with _asked(data / "podhost.sock", request) as control:
        news, ends = _first_line(control)
        if "error" in news:
            raise SystemExit(str(news["error"]))
        return _talk(control, ends)


def _parsed(line: list[str]) -> tuple[str, str, list[str]]:
    before, found, command = line[: line.index("--")] if "--" in line else line, "--" in line, line
    if not found or len(before) < 2 or before[0] != "exec":
        raise SystemExit(USAGE)
    rest, container = before[2:], ""
    if rest:
        if len(rest) != 2 or rest[0] not in ("-c", "--container"):
            raise SystemExit(USAGE)
        container = rest[1]
    return before[1], container, command[line.index("--") + 1 :]


def _running(data: Path, namespace: str, pod: str, container: str) -> tuple[Path, int]:
    """The directory of a container that runs, and the number of its run; waits a while for it, since an MPIJob's
    launcher does not wait for its workers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for card in data.glob("pods/*/pod.json"):
            with contextlib.suppress(OSError, ValueError):
                known = json.loads(card.read_bytes())
                if (known["name"], known["namespace"]) == (pod, namespace):
                    for where in _containers(card.parent, container):
                        return where
        if time.monotonic() > deadline:
            raise SystemExit(f"error: pod {namespace}/{pod} has not run for {PATIENCE:.0f} s")
        time.sleep(0.1)


def _containers(directory: Path, wanted: str) -> Iterator[tuple[Path, int]]:
    """Those that run; the operator's own name for the main one first."""
    for where in sorted(directory.iterdir(), key=lambda path: (path.name != MAIN, path.name)):
        runs = [int(fact.name.partition(".")[2]) for fact in where.glob("start.*")]
        if runs and wanted in ("", where.name) and not (where / f"exit.{max(runs)}").exists():
            yield where, max(runs)


def _asked(path: Path, request: dict[str, Any]) -> socket.socket:
    """The socket that leads to the program, from the pod host."""
    with socket.socket(socket.AF_UNIX) as client, short(str(path)) as name:
        client.connect(name)
        client.sendall(json.dumps(request).encode() + b"\n")
        data, fds, _, _ = socket.recv_fds(client, 65536, 1)
    if not fds:
        raise SystemExit(str(json.loads(data or b"{}").get("error", "the pod host has gone")))
    return socket.socket(fileno=fds[0])


def _first_line(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    line, ends = b"", list[int]()
    while not line.endswith(b"\n"):
        piece, fds, _, _ = socket.recv_fds(control, 4096, 3)
        if not piece:
            raise SystemExit("the pod host has gone")
        line, ends = line + piece, ends + list(fds)
    return dict(json.loads(line)), ends


def _talk(control: socket.socket, ends: list[int]) -> int:
    """Passes everything on, both ways, until the program has ended."""
    threading.Thread(target=_pass_on, args=(0, ends[0]), daemon=True).start()
    readers = [threading.Thread(target=_pass_on, args=(ends[n], n)) for n in (1, 2)]
    for reader in readers:
        reader.start()
    line = b""
    while piece := control.recv(4096):
        line += piece
    for reader in readers:
        reader.join(1.0)  # what it left running in the background may keep them open
    return int(json.loads(line)["code"]) if line else 137


def _pass_on(source: int, target: int) -> None:
    with contextlib.suppress(OSError):
        while piece := os.read(source, 1 << 16):
            while piece:
                piece = piece[os.write(target, piece) :]
    if source == 0:
        os.close(target)


def main(argv: list[str]) -> int:
    data = Path(argv[0])
    return deliver(data) if len(argv) == 1 else enter(data, argv[1], argv[2:])


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a thread may still wait for input that never comes
