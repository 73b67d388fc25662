"""`exec`, `bash`, `attach` and `port-forward`: into the pods of a job, in both programs' words."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

from rowlock.cli import client
from rowlock.cli.client import Server
from rowlock.cli.grammar import Line, Refused
from rowlock.cli.jobs import find
from rowlock.cli.logs import meant_pod
from rowlock.cli.place import project
from rowlock.cli.websocket import CLOSE, MUCH, WebSocket, send_all

STDIN, STDOUT, STDERR, ERROR, RESIZE = 0, 1, 2, 3, 4
_CHUNK = 1 << 15


# ---------------------------------------------------------------- which pod


def _pod(line: Line, name: str) -> tuple[Server, dict[str, Any]]:
    """The running pod that is meant: the job's chief, `--pod`, or with `rowlock` a pod's own name."""
    server = client.connect(line)
    try:
        workload = find(server, project(line), name)
    except Refused as refusal:
        alone = not line.pod and getattr(line, "rank", None) is None
        if line.program == "rowlock" and alone and (found := _by_name(server, line, name)):
            return server, _running(found)
        told = f"The job: '{name}' is not found. " if line.program == "runai" else ""
        raise Refused(told + refusal.message, refusal.code) from None
    pod = meant_pod(server, workload, line) or str(workload["additionalFields"]["chief"])
    if not pod:
        raise Refused(
            f"Unable to run command in a pod that is not running: the job {name} has no pods "
            f"({workload.get('phaseMessage') or workload['phase']})"
        )
    return server, _running(server.get(f"/api/v1/namespaces/{workload['namespace']}/pods/{pod}"))


def _by_name(server: Server, line: Line, name: str) -> dict[str, Any] | None:
    """A pod of the project that belongs to no job, or is called by its full name."""
    projects = client.pages(server, "/api/v1/org-unit/projects", "projects")
    home = next((p["status"]["namespace"] for p in projects if p["name"] == project(line)), "")
    found = server.get("/api/v1/pods", fieldSelector=f"metadata.name={name},metadata.namespace={home}")["items"]
    return dict(found[0]) if found else None


def _running(pod: dict[str, Any]) -> dict[str, Any]:
    name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase", "Pending")
    if phase != "Running":
        raise Refused(f"Unable to run command in a pod that is not running: {name} is {phase}")
    return pod


def _container(pod: dict[str, Any], line: Line) -> dict[str, Any]:
    known = pod["spec"]["containers"]
    wanted = line.container or known[0]["name"]
    for one in known:
        if one["name"] == wanted:
            return dict(one)
    raise Refused(f"{pod['metadata']['name']} has no container {wanted}: it has {', '.join(c['name'] for c in known)}")


def _path(pod: dict[str, Any], what: str) -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/{what}"


# ---------------------------------------------------------------- exec, bash, attach


def exec_(line: Line) -> int:
    """Runs a command in a pod; its exit code is ours."""
    command = [*line.words[1:], *(line.rest or [])]
    if not line.words or not command:
        raise Refused(f"`{line.program} {line.verb}` needs a job and a command: JOB -- COMMAND...", 2)
    return _enter(line, line.words[0], command, stdin=line.stdin, tty=line.tty)


def bash(line: Line) -> int:
    """An interactive shell in a pod."""
    return _enter(line, line.word("job"), ["/bin/bash"], stdin=True, tty=sys.stdin.isatty())


def _enter(line: Line, name: str, command: list[str], *, stdin: bool, tty: bool) -> int:
    server, pod = _pod(line, name)
    if tty and not sys.stdin.isatty():
        print("Unable to use a TTY - input is not a terminal or the right kind of file", file=sys.stderr)
        tty = False
    query = _query(_container(pod, line)["name"], stdin=stdin, tty=tty)
    return _talk(WebSocket(server, _path(pod, "exec"), query + [("command", word) for word in command]), stdin, tty)


def attach(line: Line) -> int:
    """Joins the program of a pod."""
    server, pod = _pod(line, line.word("job"))
    container = _container(pod, line)
    stdin = not line.no_stdin and bool(container.get("stdin"))
    tty = not line.no_tty and sys.stdin.isatty() and bool(container.get("tty"))
    if sys.stdin.isatty() and not line.no_tty and not container.get("tty"):
        print(f"Unable to use a TTY - container {container['name']} did not allocate one", file=sys.stderr)
    print(f"Connecting to pod {pod['metadata']['name']}", file=sys.stderr)
    if stdin:
        print("If you don't see a command prompt, try pressing enter.", file=sys.stderr)
    query = _query(container["name"], stdin=stdin, tty=bool(container.get("tty")))
    return _talk(WebSocket(server, _path(pod, "attach"), query), stdin, tty)


def _query(container: str, *, stdin: bool, tty: bool) -> list[tuple[str, str]]:
    wanted = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    return [("container", container), *((name, "true") for name, yes in wanted.items() if yes)]


def _talk(wire: WebSocket, stdin: bool, tty: bool) -> int:
    """Until the program has ended; its exit code. What the terminal was like it is again afterwards."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    with contextlib.ExitStack() as later:
        later.callback(wire.close)
        for end in (reading, writing):
            later.callback(os.close, end)
        if tty:
            later.enter_context(_raw())
            before = signal.signal(signal.SIGWINCH, lambda *_: os.write(writing, b"."))
            later.callback(signal.signal, signal.SIGWINCH, before)
            os.write(writing, b".")
        return _exchange(wire, reading, stdin)


def _exchange(wire: WebSocket, resized: int, stdin: bool) -> int:
    status: bytes = b""
    while True:
        for channel, data in wire.pump():
            if channel in (STDOUT, STDERR):
                send_all(channel, data)
            elif channel == ERROR:
                status += data
        if not wire.open:
            return _code(status)
        readers: list[Any] = [wire, resized, *([0] if stdin and wire.waiting < MUCH else [])]
        ready, _, _ = select.select(readers, [wire] if wire.waiting else [], [], 0 if wire.pending else None)
        if resized in ready:
            os.read(resized, 4096)
            size = os.get_terminal_size(0)
            wire.give(RESIZE, f'{{"Width":{size.columns},"Height":{size.lines}}}'.encode())
        if 0 in ready:
            data = os.read(0, _CHUNK)
            stdin = bool(data)
            wire.give(*((STDIN, data) if data else (CLOSE, bytes((STDIN,)))))


def _code(status: bytes) -> int:
    """The exit code in the last message. Raises Refused when there is none."""
    import json

    try:
        found = json.loads(status)
    except ValueError:
        raise Refused("the connection to the server broke; the command was stopped. Look: `rowlock status`") from None
    if found.get("status") == "Success":
        return 0
    for cause in found.get("details", {}).get("causes", ()):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise Refused(str(found.get("message", "the command could not be run")))


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the program, also Ctrl-C."""
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead counts
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


# ---------------------------------------------------------------- port-forward


def port_forward(line: Line) -> int:
    """Ports of this machine lead into a pod, until Ctrl-C."""
    pairs = [_ports(text) for text in [*line.port, *line.words[1:]]]
    if not line.words or not pairs:
        raise Refused(f"`{line.program} {line.verb}` needs a job and ports: JOB --port 8080:80", 2)
    server, pod = _pod(line, line.words[0])
    address = "127.0.0.1" if line.address == "localhost" else line.address
    listeners: dict[socket.socket, int] = {}
    with contextlib.ExitStack() as later:
        for mine, theirs in pairs:
            try:
                made = later.enter_context(socket.create_server((address, mine)))
            except OSError as error:
                raise Refused(f"port {mine} of {address} cannot be used: {error.strerror or error}") from None
            listeners[made] = theirs
            print(f"Forwarding from {address}:{made.getsockname()[1]} -> {theirs}", flush=True)
        while True:
            for one in select.select(list(listeners), [], [])[0]:
                accepted = one.accept()[0]
                job = (server, _path(pod, "portforward"), listeners[one], accepted)
                threading.Thread(target=_forward, args=job, daemon=True).start()


def _ports(text: str) -> tuple[int, int]:
    mine, _, theirs = text.partition(":")
    theirs = theirs or mine
    if not (mine.isdigit() or mine == "") or not theirs.isdigit() or not 0 < int(theirs) < 65536:
        raise Refused(f'"{text}" is no pair of ports: LOCAL:REMOTE, for example 8080:80', 2)
    return int(mine or 0), int(theirs)


def _forward(server: Server, path: str, port: int, local: socket.socket) -> None:
    """One connection; what goes wrong is told and the others go on."""
    with local:
        try:
            wire = WebSocket(server, path, [("ports", str(port))])
        except (Refused, OSError) as error:
            print(f"connection to port {port} failed: {error}", file=sys.stderr)
            return
        try:
            _copy(wire, local)
        except OSError as error:
            print(f"connection to port {port} broke: {error}", file=sys.stderr)
        finally:
            wire.close()


def _copy(wire: WebSocket, local: socket.socket) -> None:
    """Both ways, until the pod closes. Each channel begins with its port in two bytes."""
    begun, more = set[int](), True
    while wire.open:
        for channel, data in wire.pump():
            piece = data if channel in begun else data[2:]
            begun.add(channel)
            if channel == 0:
                local.sendall(piece)
            elif piece:
                print(piece.decode(errors="replace"), file=sys.stderr)
        readers: list[Any] = [wire, *([local] if more and wire.waiting < MUCH else [])]
        patience = 0 if wire.pending or not wire.open else None
        ready, _, _ = select.select(readers, [wire] if wire.waiting else [], [], patience)
        if local in ready:
            data = local.recv(_CHUNK)
            more = bool(data)
            wire.give(*((0, data) if data else (CLOSE, b"\0")))
