"""The server's side of the pod host: starts it, sends requests, dismisses it; programs run on without either.

One connection carries requests and answers as JSON lines (see `shim/pod_host.py`); requests for sockets use a connection each.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import msgspec
import psutil

import rowlock
from rowlock.errors import Unavailable
from rowlock.kubelet.shim import pod_host
from rowlock.kubelet.shim.fact_files import ticks
from rowlock.kubelet.shim.stdio import is_own_peer, short_socket_path

_ATTEMPTS = 3
_DISMISS_TIMEOUT = 5.0
"""Seconds that a pod host may take to end."""
_HOST_ENVIRONMENT = {"LD_BIND_NOW": "1"}
"""Symbols of the C library are bound once in the pod host, not again in each fork: 40 page faults fewer per container."""
_ANSWER_TIMEOUT = 10.0
"""Seconds without an answer after which the pod host is checked: it may be busy, or stopped by a pod."""
_HUNG_AFTER = 120.0
"""Seconds without any answer after which the pod host is killed, so that one pod's request does not block all others."""
HOST_GONE = {"error": "the pod host has gone"}

log = logging.getLogger("rowlock.kubelet")


def socket_path(data: Path) -> Path:
    """The path of the pod host's socket: in the data directory, which only its owner can enter."""
    return data / "podhost.sock"


def _encode_request(request: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(request) + b"\n"
    except UnicodeEncodeError:  # a variable from a Secret may hold any bytes, as surrogates: only `json` writes these
        return json.dumps(request).encode() + b"\n"


def _kill_stopped_hosts(path: str) -> None:
    """Kills a stopped pod host that listens at `path`: programs of this user can stop it (SIGSTOP). Pods do not need it, and another
    takes its place. Shims have its command line, too; stopped ones are of no use either."""
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["status"] == psutil.STATUS_STOPPED and path in (process.info["cmdline"] or ()):
            log.warning("process %d, a pod host or a shim, has been stopped and is killed", process.pid)
            with contextlib.suppress(psutil.Error):  # it has just ended
                process.kill()


def _close_unwanted(asking: asyncio.Future[socket.socket]) -> None:
    """Closes a socket whose requester was cancelled."""
    if not asking.cancelled() and asking.exception() is None:
        asking.result().close()


class PodHostClient:
    """A connection to the pod host; starts one when none answers."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._path = socket_path(data)
        self._child = 0
        self._writer: asyncio.StreamWriter | None = None
        self._pending: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader_task: asyncio.Task[None] | None = None
        self._sequence = 0
        self._answered_at = time.monotonic()
        self.hello: dict[str, Any] = {}
        self.disconnected = asyncio.Event()
        """Set when the connection is lost."""

    @property
    def is_connected(self) -> bool:
        return self._writer is not None and not self._writer.is_closing()

    async def connect(self, network: str, join: Sequence[int] = ()) -> dict[str, Any]:
        """Connects, and starts a pod host if none answers. `network` is `none`, `auto` or `user`; `join`: shims whose fabric a new pod
        host tries to join, as long as one lives.

        Raises Unavailable when no pod host can be started."""
        for _ in range(_ATTEMPTS):
            self.hello = await self._say_hello(network, join)
            if self.hello.get("protocol") == pod_host.PROTOCOL:
                return self.hello
            await self.close()  # it died before it answered: the next attempt starts another
            if "error" not in self.hello:
                self._path.unlink(missing_ok=True)  # an older version serves its pods to their end and then exits
        raise Unavailable(f"the pod host does not start: {self._data / 'podhost.log'} says why")

    async def _say_hello(self, network: str, join: Sequence[int]) -> dict[str, Any]:
        if not await self._open_connection():
            self._launch_host(network, join)
            if not await self._open_connection():
                return dict(HOST_GONE)
        return await self.ask("hello", directory=str(self._data))

    async def _open_connection(self) -> bool:
        try:
            with short_socket_path(str(self._path)) as name:
                reader, writer = await asyncio.open_unix_connection(name, limit=1 << 24)
        except OSError:
            return False
        if not is_own_peer(writer.get_extra_info("socket")):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            raise Unavailable(f"another user listens at {self._path}: remove it, and see who can write in {self._data}")
        self._writer = writer
        self.disconnected.clear()
        self._reader_task = asyncio.create_task(self._read_answers(reader))
        return True

    def _launch_host(self, network: str, join: Sequence[int]) -> None:
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        with short_socket_path(str(self._path)) as name:
            listener.bind(name)
        os.chmod(self._path, 0o600)
        listener.listen(16)
        os.set_inheritable(listener.fileno(), True)
        source = str(Path(rowlock.__file__).parents[1])
        command = pod_host.command(source, (listener.fileno(), str(self._path)), network, join)
        log = os.open(self._data / "podhost.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in ((null, 0), (log, 1), (log, 2))]
        with listener:
            self._child = os.posix_spawn(command[0], command, os.environ | _HOST_ENVIRONMENT, file_actions=actions)
        os.close(log)
        os.close(null)

    def _reap_child(self) -> None:
        """Reaps the pod host if it was our child and has ended."""
        if self._child:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._child, os.WNOHANG)

    async def _read_answers(self, reader: asyncio.StreamReader) -> None:
        try:
            with contextlib.suppress(OSError):
                while line := await reader.readline():
                    self._answered_at = time.monotonic()
                    answer = json.loads(line)
                    future = self._pending.pop(answer.get("id"), None)
                    if future is not None and not future.done():
                        future.set_result(answer)
        finally:  # in every case, also after `close`: no request may wait for an answer that will not come
            if self._writer is not None:
                self._writer.close()
            self._reap_child()
            for future in self._pending.values():
                if not future.done():
                    future.set_result(dict(HOST_GONE))
            self._pending.clear()
            self.disconnected.set()

    async def ask(self, op: str, **request: Any) -> dict[str, Any]:
        """Sends one request and returns its answer; a failure is `{"error": sentence}`, also if the pod host is gone."""
        if not self.is_connected or self._writer is None:
            return dict(HOST_GONE)
        self._sequence += 1
        message = _encode_request({"op": op, "id": self._sequence, **request})
        if len(message) > pod_host.MAX_REQUEST_BYTES:
            return {
                "error": f"what it needs to start comes to {len(message)} bytes, and the pod host takes {pod_host.MAX_REQUEST_BYTES}:"
                " give it fewer variables, arguments and mounts"
            }
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[self._sequence] = future
        self._writer.write(message)
        asked_at = time.monotonic()
        while not (await asyncio.wait((future,), timeout=_ANSWER_TIMEOUT))[0]:
            await asyncio.to_thread(_kill_stopped_hosts, str(self._path))
            if time.monotonic() - max(asked_at, self._answered_at) > _HUNG_AFTER:
                self._kill_host()
        return future.result()

    def _kill_host(self) -> None:
        """Kills a pod host that hangs. Pods do not need it, and another takes its place."""
        pid = int(self.hello.get("pid") or 0)
        log.warning(
            "the pod host, process %d, has not answered for %.0f s: another one takes its place", pid, _HUNG_AFTER
        )
        if pid and self.hello.get("ticks") == ticks(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        elif self._writer is not None:  # it has not even answered `hello`
            self._path.unlink(missing_ok=True)
            self._writer.close()

    def prepare_network(self, uid: str, address: str) -> None:
        """Asks for the network of a pod that will start. Does not wait for the answer: the start makes what is missing."""
        if self.is_connected and self._writer is not None:
            self._writer.write(_encode_request({"op": "network", "uid": uid, "ip": address}))

    async def request_socket(self, op: str, *, threads: Executor | None = None, **request: Any) -> socket.socket:
        """Sends a request whose answer is a socket, such as `proxy` or `dial`. `threads`: the pool in which it waits, asyncio's by default.
        Raises Unavailable with the pod host's sentence."""
        message = _encode_request({"op": op, **request})
        asking = asyncio.get_running_loop().run_in_executor(threads, self._receive_socket, message)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(_close_unwanted)
            raise

    def _receive_socket(self, request: bytes) -> socket.socket:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            try:
                with short_socket_path(str(self._path)) as name:
                    client.connect(name)
                if not is_own_peer(client):
                    raise PermissionError("another user listens there")
                client.sendall(request)
                data, fds, _, _ = socket.recv_fds(client, 65536, 1)
            except OSError as error:
                raise Unavailable(f"the pod host does not answer ({error}): try again in a moment") from None
        if not fds:
            raise Unavailable(str(json.loads(data or b"{}").get("error", "the pod host has gone")))
        return socket.socket(fileno=fds[0])

    async def dismiss(self) -> None:
        """Ends the pod host when nothing runs and the server shuts down; returns when it has ended, or after a timeout."""
        pid = int(self.hello.get("pid") or 0)
        start_ticks = ticks(pid) if pid else 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISMISS_TIMEOUT):
                if (await self.ask("dismiss")).get("running") != 0:
                    return
                await self.disconnected.wait()
                while start_ticks and ticks(pid) == start_ticks:
                    self._reap_child()
                    await asyncio.sleep(0.002)

    async def close(self) -> None:
        """Closes the connection; the pod host and all pods live on."""
        if self._reader_task is not None:
            self._reader_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader_task
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        self._reap_child()
