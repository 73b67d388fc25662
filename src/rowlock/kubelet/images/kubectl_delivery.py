"""Stands in for the image `kubectl-delivery` of an MPIJob: installs a `kubectl` into $TARGET_DIR that knows `exec`.

    python -m rowlock.kubelet.images.kubectl_delivery DATA_DIR                                      in the init container
    python -m rowlock.kubelet.images.kubectl_delivery DATA_DIR NAMESPACE exec POD [-c C] -- CMD…    in the launcher, by mpirun

mpirun starts its daemons in the workers with it. Pods cannot reach the API server, so it asks the pod host of this
machine, which starts the program in the worker's own container and namespaces. Standard library only.
"""

import contextlib
import json
import os
import re
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rowlock.kubelet.shim.stdio import short_socket_path

PATIENCE = 60.0
"""Seconds that a worker may take to start."""
MAIN_CONTAINER = "mpi"
_RUN_NUMBER = re.compile(r"[0-9]{1,9}")
USAGE = "this kubectl knows only `exec POD [--container NAME] -- COMMAND`: rowlock made it for mpirun"


def install_kubectl(data: Path) -> int:
    """Writes the `kubectl` that the launcher finds in /opt/kube."""
    target = Path(os.environ.get("TARGET_DIR", "/opt/kube"))
    call = [sys.executable, "-P", "-m", __spec__.name, str(data), os.environ.get("NAMESPACE", "default")]
    program = target / "kubectl"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(call)} "$@"\n')
    program.chmod(0o755)
    print(f"{program} stands for kubectl")
    return 0


def exec_in_pod(data: Path, namespace: str, line: list[str]) -> int:
    """Runs a command in another pod; returns its exit code. Raises SystemExit with a sentence."""
    pod, container, command = _parse_exec_args(line)
    directory, number = _wait_for_container(data, namespace, pod, container)
    request = {"op": "enter", "argv": command, "tty": False, "dir": str(directory), "n": number}
    with _request_exec(data / "podhost.sock", request) as control:
        reply, stdio_fds = _receive_first_line(control)
        if "error" in reply:
            raise SystemExit(str(reply["error"]))
        return _copy_streams(control, stdio_fds)


def _parse_exec_args(line: list[str]) -> tuple[str, str, list[str]]:
    flags, has_separator, command = line[: line.index("--")] if "--" in line else line, "--" in line, line
    if not has_separator or len(flags) < 2 or flags[0] != "exec":
        raise SystemExit(USAGE)
    rest, container = flags[2:], ""
    if rest:
        if len(rest) != 2 or rest[0] not in ("-c", "--container"):
            raise SystemExit(USAGE)
        container = rest[1]
    return flags[1], container, command[line.index("--") + 1 :]


def _wait_for_container(data: Path, namespace: str, pod: str, container: str) -> tuple[Path, int]:
    """The directory of a running container and the number of its run; waits up to PATIENCE for it, since an MPIJob's
    launcher does not wait for its workers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for card in data.glob("pods/*/pod.json"):
            with contextlib.suppress(OSError, ValueError):
                pod_card = json.loads(card.read_bytes())
                if (pod_card["name"], pod_card["namespace"]) == (pod, namespace):
                    for running in _running_containers(card.parent, container):
                        return running
        if time.monotonic() > deadline:
            raise SystemExit(f"error: pod {namespace}/{pod} has not run for {PATIENCE:.0f} s")
        time.sleep(0.1)


def _running_containers(directory: Path, container: str) -> Iterator[tuple[Path, int]]:
    """The running containers; the operator's own name for the main one comes first."""
    for directory_entry in sorted(directory.iterdir(), key=lambda path: (path.name != MAIN_CONTAINER, path.name)):
        runs = [int(fact.name[6:]) for fact in directory_entry.glob("start.*") if _RUN_NUMBER.fullmatch(fact.name[6:])]
        if runs and container in ("", directory_entry.name) and not (directory_entry / f"exit.{max(runs)}").exists():
            yield directory_entry, max(runs)


def _request_exec(path: Path, request: dict[str, Any]) -> socket.socket:
    """Asks the pod host to run the program; returns the socket to it."""
    with socket.socket(socket.AF_UNIX) as client, short_socket_path(str(path)) as name:
        client.connect(name)
        client.sendall(json.dumps(request).encode() + b"\n")
        data, fds, _, _ = socket.recv_fds(client, 65536, 1)
    if not fds:
        raise SystemExit(str(json.loads(data or b"{}").get("error", "the pod host has gone")))
    return socket.socket(fileno=fds[0])


def _receive_first_line(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    line, stdio_fds = b"", list[int]()
    while not line.endswith(b"\n"):
        piece, fds, _, _ = socket.recv_fds(control, 4096, 3)
        if not piece:
            raise SystemExit("the pod host has gone")
        line, stdio_fds = line + piece, stdio_fds + list(fds)
    return dict(json.loads(line)), stdio_fds


def _copy_streams(control: socket.socket, stdio_fds: list[int]) -> int:
    """Copies data both ways until the program has ended; returns its exit code."""
    threading.Thread(target=_copy_stream, args=(0, stdio_fds[0]), daemon=True).start()
    readers = [threading.Thread(target=_copy_stream, args=(stdio_fds[n], n)) for n in (1, 2)]
    for reader in readers:
        reader.start()
    line = b""
    while piece := control.recv(4096):
        line += piece
    for reader in readers:
        reader.join(1.0)  # processes that it left running may keep them open
    return int(json.loads(line)["code"]) if line else 137


def _copy_stream(source: int, target: int) -> None:
    with contextlib.suppress(OSError):
        while piece := os.read(source, 1 << 16):
            while piece:
                piece = piece[os.write(target, piece) :]
    if source == 0:
        os.close(target)


def main(argv: list[str]) -> int:
    data = Path(argv[0])
    return install_kubectl(data) if len(argv) == 1 else exec_in_pod(data, argv[1], argv[2:])


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a thread may still wait for input that never comes
