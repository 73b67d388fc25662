"""`exec`, `bash`, `attach` and `port-forward` into the pods of a job, for both `rowlock` and `runai`."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rowlock.cli import client
from rowlock.cli.client import ServerClient
from rowlock.cli.context import project
from rowlock.cli.grammar import CommandError, CommandLine, is_digits
from rowlock.cli.lookups import find_workload, read_projects
from rowlock.cli.streams.logs import selected_pod
from rowlock.cli.streams.websocket import CLOSE, SEND_HIGH_WATER, WebSocket, write_all

STDIN, STDOUT, STDERR, ERROR, RESIZE = 0, 1, 2, 3, 4
_CHUNK = 1 << 15
_POLL_S, _END_REPORT_S = 0.05, 10.0
"""Seconds between two checks whether a program has ended, and the time in which its node must report the end."""


# ---------------------------------------------------------------- which pod


def _find_running_pod(line: CommandLine, name: str) -> tuple[ServerClient, dict[str, Any]]:
    """The running pod to use: the job's chief, the one of `--pod` or `--rank`, or with `rowlock` a pod by its own name."""
    server = client.connect(line)
    try:
        workload = find_workload(server, project(line), name)
    except CommandError as refusal:
        alone = not line.pod and getattr(line, "rank", None) is None
        if line.program == "rowlock" and alone and (bare_pod := _find_pod_by_name(server, line, name)):
            return server, _require_running(bare_pod)
        prefix = f"The job: '{name}' is not found. " if line.program == "runai" else ""
        raise CommandError(prefix + refusal.message, refusal.code) from None
    pod = selected_pod(server, workload, line) or str(workload["additionalFields"]["chief"])
    if not pod:
        raise CommandError(
            f"Unable to run command in a pod that is not running: the job {name} has no pods "
            f"({workload.get('phaseMessage') or workload['phase']})"
        )
    return server, _require_running(server.get(f"/api/v1/namespaces/{workload['namespace']}/pods/{pod}"))


def _find_pod_by_name(server: ServerClient, line: CommandLine, name: str) -> dict[str, Any] | None:
    """The pod of the project with this full name, whether or not it belongs to a job."""
    namespace = next((p["status"]["namespace"] for p in read_projects(server) if p["name"] == project(line)), "")
    pods = server.get("/api/v1/pods", fieldSelector=f"metadata.name={name},metadata.namespace={namespace}")["items"]
    return dict(pods[0]) if pods else None


def _require_running(pod: dict[str, Any]) -> dict[str, Any]:
    name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase", "Pending")
    if phase != "Running":
        raise CommandError(f"Unable to run command in a pod that is not running: {name} is {phase}")
    return pod


def _find_container(pod: dict[str, Any], line: CommandLine) -> dict[str, Any]:
    containers = [*pod["spec"]["containers"], *pod["spec"].get("ephemeralContainers", ())]
    name = line.container or containers[0]["name"]
    for container in containers:
        if container["name"] == name:
            return dict(container)
    raise CommandError(
        f"{pod['metadata']['name']} has no container {name}: it has {', '.join(c['name'] for c in containers)}"
    )


def subresource_path(pod: dict[str, Any], subresource: str) -> str:
    """The path of a streaming subresource of a pod: exec, attach or portforward."""
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/{subresource}"


# ---------------------------------------------------------------- exec, bash, attach


def exec_(line: CommandLine) -> int:
    """Run a command in a pod and return its exit code."""
    command = [*line.words[1:], *(line.rest or [])]
    if not line.words or not command:
        raise CommandError(f"`{line.program} {line.verb}` needs a job and a command: JOB -- COMMAND...", 2)
    return _exec_in_pod(line, line.words[0], command, stdin=line.stdin, tty=line.tty)


def bash(line: CommandLine) -> int:
    """An interactive shell in a pod."""
    return _exec_in_pod(line, line.word("job"), ["/bin/bash"], stdin=True, tty=sys.stdin.isatty())


def _exec_in_pod(line: CommandLine, name: str, command: list[str], *, stdin: bool, tty: bool) -> int:
    server, pod = _find_running_pod(line, name)
    if tty and not sys.stdin.isatty():
        print("Unable to use a TTY - input is not a terminal or the right kind of file", file=sys.stderr)
        tty = False
    query = _stream_query(_find_container(pod, line)["name"], stdin=stdin, tty=tty)
    return run_session(
        WebSocket(server, subresource_path(pod, "exec"), query + [("command", word) for word in command]), stdin, tty
    )


def attach(line: CommandLine) -> int:
    """Attach to the program of a pod."""
    server, pod = _find_running_pod(line, line.word("job"))
    return _attach_to(line, server, pod)


class EndedProgram(NamedTuple):
    """How a pod's program ended. `is_previous`: the container has been restarted since."""

    exit_code: int
    is_previous: bool


def attach_from_start(line: CommandLine, server: ServerClient, pod: dict[str, Any]) -> int | EndedProgram:
    """Attach to a pod's program until it ends, printing its log from the first line (on a real cluster only new output). Returns
    its exit code, 0 if it still runs when the connection ends. Returns an `EndedProgram`, without printing anything, if it had
    ended already. Raises CommandError."""
    before = int(_main_status(pod).get("restartCount") or 0)
    try:
        code = _attach_to(line, server, _require_running(pod), ("logs", "true"))
    except CommandError:
        if (found := _wait_for_end(server, pod, before)) is None:
            raise
        return found
    found = _wait_for_end(server, pod, before)
    return found.exit_code if found else code


def _wait_for_end(server: ServerClient, pod: dict[str, Any], restarts: int) -> EndedProgram | None:
    """How the program ended that began after this many restarts; None when its node does not report it in time or the pod is gone."""
    deadline = time.monotonic() + _END_REPORT_S
    while time.monotonic() < deadline:
        try:
            now = _read_pod(server, pod)
        except client.StatusError as refusal:
            if refusal.status != 404:
                raise
            return None
        if now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return None
        status = _main_status(now)
        is_previous = int(status.get("restartCount") or 0) > restarts
        is_over = is_previous or "waiting" in (status.get("state") or {})  # "waiting": for its restart
        ended = (status.get("lastState" if is_over else "state") or {}).get("terminated")
        if ended:
            return EndedProgram(int(ended["exitCode"]), is_previous)
        time.sleep(_POLL_S)
    return None


def _read_pod(server: ServerClient, pod: dict[str, Any]) -> dict[str, Any]:
    meta = pod["metadata"]
    return dict(server.get(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"))


def _main_status(pod: dict[str, Any]) -> dict[str, Any]:
    name = pod["spec"]["containers"][0]["name"]
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return next((dict(status) for status in statuses if status["name"] == name), {})


def _attach_to(line: CommandLine, server: ServerClient, pod: dict[str, Any], *options: tuple[str, str]) -> int:
    container = _find_container(pod, line)
    stdin = not line.no_stdin and bool(container.get("stdin"))
    tty = not line.no_tty and sys.stdin.isatty() and bool(container.get("tty"))
    if sys.stdin.isatty() and not line.no_tty and not container.get("tty"):
        print(f"Unable to use a TTY - container {container['name']} did not allocate one", file=sys.stderr)
    print(f"Connecting to pod {pod['metadata']['name']}", file=sys.stderr)
    if stdin:
        print("If you don't see a command prompt, try pressing enter.", file=sys.stderr)
    query = [*_stream_query(container["name"], stdin=stdin, tty=bool(container.get("tty"))), *options]
    return run_session(WebSocket(server, subresource_path(pod, "attach"), query), stdin, tty)


def _stream_query(container: str, *, stdin: bool, tty: bool) -> list[tuple[str, str]]:
    streams = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    return [("container", container), *((name, "true") for name, yes in streams.items() if yes)]


def run_session(websocket: WebSocket, stdin: bool, tty: bool) -> int:
    """Copy the streams until the program ends, and return its exit code. Restores the terminal's settings. Raises CommandError."""
    resize_reader, resize_writer = os.pipe()
    for end in (resize_reader, resize_writer):
        os.set_blocking(end, False)
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(websocket.close)
        for end in (resize_reader, resize_writer):
            cleanup.callback(os.close, end)
        if tty:
            cleanup.enter_context(_raw_terminal())
            old_handler = signal.signal(signal.SIGWINCH, lambda *_: os.write(resize_writer, b"."))
            cleanup.callback(signal.signal, signal.SIGWINCH, old_handler)
            os.write(resize_writer, b".")
        return _copy_streams(websocket, resize_reader, stdin)


def copy_input(websocket: WebSocket) -> None:
    """Copy stdin to the program, and its output to stdout and stderr, until the connection ends."""
    resize_reader, resize_writer = os.pipe()  # no terminal, so its size never changes
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(websocket.close)
        for end in (resize_reader, resize_writer):
            cleanup.callback(os.close, end)
        _copy_streams(websocket, resize_reader, stdin=True)


def _copy_streams(websocket: WebSocket, resized: int, stdin: bool) -> int:
    status: bytes = b""
    while True:
        for channel, data in websocket.pump():
            if channel in (STDOUT, STDERR):
                write_all(channel, data)
            elif channel == ERROR:
                status += data
        if not websocket.is_open:
            return _exit_code(status)
        readers: list[Any] = [websocket, resized, *([0] if stdin and websocket.queued_bytes < SEND_HIGH_WATER else [])]
        ready, _, _ = select.select(
            readers, [websocket] if websocket.queued_bytes else [], [], 0 if websocket.has_pending_data else None
        )
        if resized in ready:
            os.read(resized, 4096)
            size = os.get_terminal_size(0)
            websocket.queue_message(RESIZE, f'{{"Width":{size.columns},"Height":{size.lines}}}'.encode())
        if 0 in ready:
            data = os.read(0, _CHUNK)
            stdin = bool(data)
            websocket.queue_message(*((STDIN, data) if data else (CLOSE, bytes((STDIN,)))))


def _exit_code(status: bytes) -> int:
    """The exit code in the final status message. Raises CommandError when it has none."""
    import json

    try:
        result = json.loads(status)
    except ValueError:
        raise CommandError(
            "the connection to the server broke, and the command was stopped. Check the server: `rowlock status`"
        ) from None
    if result.get("status") == "Success":
        return 0
    for cause in result.get("details", {}).get("causes", ()):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise CommandError(str(result.get("message", "the command could not be run")))


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Put the terminal into raw mode, so that every key, including Ctrl-C, goes to the program."""
    import termios
    import tty

    old_attributes = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # TCSADRAIN keeps what was typed ahead
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, old_attributes)


# ---------------------------------------------------------------- port-forward


def port_forward(line: CommandLine) -> int:
    """Forward ports of this machine to ports of a pod, until Ctrl-C."""
    pairs = [_parse_ports(text) for text in [*line.port, *line.words[1:]]]
    if not line.words or not pairs:
        raise CommandError(f"`{line.program} {line.verb}` needs a job and ports: JOB --port 8080:80", 2)
    server, pod = _find_running_pod(line, line.words[0])
    address = "127.0.0.1" if line.address == "localhost" else line.address
    listeners: dict[socket.socket, int] = {}
    with contextlib.ExitStack() as cleanup:
        for local_port, remote_port in pairs:
            try:
                listener = cleanup.enter_context(socket.create_server((address, local_port)))
            except OSError as error:
                raise CommandError(
                    f"port {local_port} of {address} cannot be used: {error.strerror or error}"
                ) from None
            listeners[listener] = remote_port
            print(f"Forwarding from {address}:{listener.getsockname()[1]} -> {remote_port}", flush=True)
        forward_connections(server, subresource_path(pod, "portforward"), listeners)
    return 0


def _tell_error(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def forward_connections(
    server: ServerClient,
    path: str,
    listeners: dict[socket.socket, int],
    tell_error: Callable[[str], None] = _tell_error,
) -> None:
    """Forward every connection to the pod's port, until a listener is closed. `listeners`: {listening socket: port of the pod}."""
    while True:
        try:
            for ready_listener in select.select(list(listeners), [], [])[0]:
                accepted = ready_listener.accept()[0]
                job = (server, path, listeners[ready_listener], accepted, tell_error)
                threading.Thread(target=_forward_connection, args=job, daemon=True).start()
        except (OSError, ValueError):
            if any(listener.fileno() < 0 for listener in listeners):
                return
            raise


def _parse_ports(text: str) -> tuple[int, int]:
    local, _, remote = text.partition(":")
    remote = remote or local
    are_numbers = is_digits(local or "0") and is_digits(remote)
    if not are_numbers or not 0 < int(remote) < 65536 or not int(local or 0) < 65536:
        raise CommandError(
            f'"{text}" is not a pair of ports: write LOCAL:REMOTE, ports from 1 to 65535, for example 8080:80', 2
        )
    return int(local or 0), int(remote)


def _forward_connection(
    server: ServerClient, path: str, port: int, local: socket.socket, tell_error: Callable[[str], None]
) -> None:
    """Forward one connection. An error is reported and does not affect other connections."""
    with local:
        try:
            websocket = WebSocket(server, path, [("ports", str(port))])
        except (CommandError, OSError) as error:
            tell_error(f"connection to port {port} failed: {error}")
            return
        try:
            _copy_both_ways(websocket, local, tell_error)
        except OSError as error:
            tell_error(f"connection to port {port} broke: {error}")
        finally:
            websocket.close()


def _copy_both_ways(websocket: WebSocket, local: socket.socket, tell_error: Callable[[str], None]) -> None:
    """Copy in both directions until the pod closes. Each channel begins with its port number in two bytes."""
    started_channels, more = set[int](), True
    while websocket.is_open:
        for channel, data in websocket.pump():
            piece = data if channel in started_channels else data[2:]
            started_channels.add(channel)
            if channel == 0:
                local.sendall(piece)
            elif piece:
                tell_error(piece.decode(errors="replace"))
        readers: list[Any] = [websocket, *([local] if more and websocket.queued_bytes < SEND_HIGH_WATER else [])]
        timeout = 0 if websocket.has_pending_data or not websocket.is_open else None
        ready, _, _ = select.select(readers, [websocket] if websocket.queued_bytes else [], [], timeout)
        if local in ready:
            data = local.recv(_CHUNK)
            more = bool(data)
            websocket.queue_message(*((0, data) if data else (CLOSE, b"\0")))
