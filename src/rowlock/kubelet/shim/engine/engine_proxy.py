"""Stands in, as the shim's child, for a program that a container engine runs.

Instead of the program the shim starts this fork. It creates the container, attaches before it starts, copies data between it and
its own stdin, stdout and stderr, and exits with it. So logs, terminals, stop and exit facts use the shim's one code path. SIGTERM
is passed on. When the fork has exited, for whatever reason, `collect_exit` (`container_end.py`, in the shim) asks the engine how
the container ended and removes it. Standard library only.
"""

import contextlib
import os
import re
import select
import signal
import time
import tty
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rowlock.kubelet.files import untrusted
from rowlock.kubelet.shim.engine.container_end import KILLED_EXIT_CODE, ContainerStop, exec_error_message, inspect_state
from rowlock.kubelet.shim.engine_client import Engine, EngineError, Stream, connect_engine
from rowlock.kubelet.shim.fact_files import UNCREATED, run_fact_path, ticks, write_fact
from rowlock.kubelet.shim.shim_request import ConsoleSpec, EngineRunSpec, ShimRequest

RECONNECT_TIMEOUT = 10.0
"""Seconds to wait for an engine to come back before its container is given up."""
_START_ERROR = re.compile(r'(exec: ".*?"): (?:stat [^:]*: )?(.*?)(?:: unknown)?$')
_NO_SPACE, _NO_INIT = "no space left on device", "container-init binary not found"
_NO_TUN = re.compile(r"slirp4netns failed.*?/dev/net/tun\W+(Permission denied|No such file or directory)", re.DOTALL)
_INIT_EXEC_ERROR = re.compile(
    rb"(?:\[FATAL tini \(\d+\)\] exec .* failed: |(?:ERROR )?\(?catatonit.*?: )(No such file[^\r\n]*|Perm[^\r\n]*)"
)
"""What the engine's init prints when the program does not exist."""
_INIT_ERROR_PREFIXES = (b"[FATAL tini (", b"ERROR catatonit", b"ERROR (catatonit", b"catatonit")
"""The beginnings of such a line, which arrives in several pieces."""
_EXIT_CODE_MEANINGS = {126: "permission denied", 127: "no such file or directory"}
"""Exit code of a program that could not begin → its meaning, if the engine gives no better one."""
_STOP_INTERVAL = 0.05
"""Seconds between checks of the processes that were asked to end."""
_CHUNK = 1 << 16
_FRAME_HEADER_SIZE = 8
"""Bytes before each piece of output without a terminal: its stream and its length."""


def run_container(request: ShimRequest, engine_spec: EngineRunSpec) -> str:
    """In the shim's fork, in place of exec: runs the container to its end. Returns only if it could not be started, with the
    reason."""
    engine, console = connect_engine(engine_spec["socket"]), request.console
    name, fact, is_created = engine_spec["name"], dict[str, Any](), False
    start_fact_path = f"{run_fact_path(request, 'start')}.begun"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(run_fact_path(request, UNCREATED))  # left by an earlier attempt
    try:
        if engine_spec["sandbox"]:
            _ensure_sandbox(engine, engine_spec["sandbox"])
        engine.request("POST", f"/containers/create?name={name}", engine_spec["create"])
        is_created = True
        stream = _attach_container(engine, name, console)
        engine.request("POST", f"/containers/{name}/start")
    except EngineError as error:
        with contextlib.suppress(EngineError):  # mostly there is none
            engine.request("DELETE", f"/containers/{name}?force=1&v=1")
        sentence = start_error_message(error, engine.name)
        if not is_created or error.status == 0:
            told = sentence if error.status == 0 else f"{engine.name} could not create the container: {sentence}"
            write_fact(run_fact_path(request, UNCREATED), {"why": told})
            os.unlink(start_fact_path)  # nothing has begun
        return sentence

    def on_term(*_: object) -> None:
        if _stop_container(request, engine_spec, int(fact.get("pid") or 0)):
            return
        with contextlib.suppress(EngineError):  # it has just ended
            engine.request("POST", f"/containers/{name}/kill?signal={engine_spec['stop_signal']}")

    signal.signal(signal.SIGTERM, on_term)
    fact |= _start_fact(engine, name)
    write_fact(start_fact_path, (untrusted.read_object(start_fact_path) or {}) | fact)
    _close_other_fds(stream.socket.fileno())
    pump = StreamPump(bool(console.get("tty")), stdin=bool(console.get("stdin")))
    if console.get("tty"):
        pump.forward_resizes(
            lambda rows, columns: engine.request("POST", f"/containers/{name}/resize?h={rows}&w={columns}")
        )
    os._exit(_pump_until_exit(engine, name, request, stream, pump))


def _stop_container(request: ShimRequest, engine_spec: EngineRunSpec, pid: int) -> bool:
    """Signals the program from here if its first process would not pass the signal on; False = the engine is to signal it."""
    if not pid:
        return False
    has_init = bool(engine_spec["create"]["HostConfig"].get("Init"))
    stop = ContainerStop(pid, engine_spec["stop_signal"], has_init=has_init)
    if not stop.begin():
        return False

    def ask_more(*_: object) -> None:
        asked = len(stop.asked)
        stop.ask_more()
        if len(stop.asked) > asked:
            write_fact(run_fact_path(request, "passed_on"), {"pids": stop.asked})

    signal.signal(signal.SIGALRM, ask_more)
    signal.setitimer(signal.ITIMER_REAL, _STOP_INTERVAL, _STOP_INTERVAL)
    ask_more()
    return True


def _close_other_fds(kept_fd: int) -> None:
    """Closes all inherited descriptors, as exec would; by that the shim learns that the program runs."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept_fd:
            with contextlib.suppress(OSError):  # the listing's own descriptor
                os.close(int(name))


def _ensure_sandbox(engine: Engine, sandbox_spec: Mapping[str, Any]) -> None:
    """Starts the container that holds the pod's network and memory volumes across restarts; mostly it runs already."""
    for volume in sandbox_spec["volumes"]:
        engine.request("POST", "/volumes/create", volume)
    deadline = time.monotonic() + RECONNECT_TIMEOUT
    while True:
        try:
            engine.request("POST", f"/containers/create?name={sandbox_spec['name']}", sandbox_spec["create"])
        except EngineError as error:
            if error.status != 409 and "already in use" not in str(error):
                raise
        try:
            engine.request("POST", f"/containers/{sandbox_spec['name']}/start")
            return
        except EngineError as error:  # 404: another container of the pod is just creating it
            if error.status != 404 or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _attach_container(engine: Engine, name: str, console: ConsoleSpec) -> Stream:
    stdin = 1 if console.get("stdin") else 0
    path = f"/containers/{name}/attach?stream=1&stdout=1&stderr=1&stdin={stdin}"
    return engine.open_stream("POST", path)[0]


def _pump_until_exit(engine: Engine, name: str, request: ShimRequest, stream: Stream, pump: "StreamPump") -> int:
    """Copies data until the container has ended; returns its exit code. Waits for an engine that is being restarted."""
    while True:
        with stream:
            pump.run(stream)
        if pump.start_error:
            write_fact(run_fact_path(request, "refused"), {"why": pump.start_error})
        try:
            return int(
                (engine.request("POST", f"/containers/{name}/wait", timeout=None) or {}).get(
                    "StatusCode", KILLED_EXIT_CODE
                )
            )
        except EngineError as error:
            reattached = None if error.status else _reattach_container(engine, name, request.console)
            if reattached is None:
                return KILLED_EXIT_CODE
            stream = reattached


def _reattach_container(engine: Engine, name: str, console: ConsoleSpec) -> Stream | None:
    """Attaches again if the engine comes back in time and the container still runs; else None."""
    deadline = time.monotonic() + RECONNECT_TIMEOUT
    while time.monotonic() < deadline:
        with contextlib.suppress(EngineError):
            running = inspect_state(engine, name).get("Running")
            return _attach_container(engine, name, console) if running else None
        time.sleep(0.1)
    return None


def start_error_message(error: EngineError, engine: str) -> str:
    """The engine's error message without its internals, with a hint where there is one."""
    if error.status == 0:
        return f"{error}: start the engine again, or give the pod an image that runs as a process"
    if _NO_SPACE in str(error):
        return f"{_NO_SPACE} for {engine}: `{engine} system df` shows what takes it"
    if _NO_INIT in str(error):
        return f"{engine} lacks the program that is process 1 of its containers: install the package catatonit"
    if match := _NO_TUN.search(str(error)):
        mend = "chmod 666 /dev/net/tun" if match[1] == "Permission denied" else "modprobe tun"
        return (
            f"{engine} without root cannot give a pod a network of its own: its slirp4netns cannot open /dev/net/tun ({match[1]}). "
            f"As root: `{mend}`; or give the pod hostNetwork: true"
        )
    match = _START_ERROR.search(str(error))
    return f"{match[1]}: {match[2]}" if match else str(error)


def _start_fact(engine: Engine, name: str) -> dict[str, Any]:
    """The fields of `start.N` for the container. The pid is the container's own if this user may enter its namespaces (stacks,
    ports), else the fork's."""
    fact: dict[str, Any] = {"started": time.time()}
    with contextlib.suppress(EngineError, KeyError):
        inspected = engine.request("GET", f"/containers/{name}/json")
        fact["container"], pid = f"{engine.name}://{inspected['Id']}", int(inspected["State"]["Pid"])
        if pid and can_enter_namespaces(pid, inspected["Id"]):
            fact |= {"pid": pid, "ticks": ticks(pid)}
    return fact


def can_enter_namespaces(pid: int, container: str) -> bool:
    """Whether the process is on this machine and we may enter its namespaces. (An engine may live in a virtual machine.)"""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cgroup") as file:
            if container not in file.read():
                return False
        os.close(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        return True
    return False


def _wait_exec_started(engine: Engine, exec_id: str) -> dict[str, Any]:
    """Waits until the program has begun or failed to; returns the engine's state of it."""
    while True:
        state = dict(engine.request("GET", f"/exec/{exec_id}/json"))
        if state.get("Pid") or not state.get("Running"):
            return state
        time.sleep(0.005)


def _read_all(stream: Stream) -> str:
    """What the engine sends in place of the program's output."""
    return b"".join(iter(lambda: stream.recv(_CHUNK), b"")).decode(errors="replace").strip()


class StreamPump:
    """Copies data both ways between a stream of the engine and this process's stdin, stdout and stderr."""

    def __init__(self, terminal: bool, *, stdin: bool) -> None:
        self._terminal, self._stdin = terminal, stdin
        self._frames = b""
        self._output_started = False
        self._pending = b""
        """Output that is held back because it may be an error line of the engine's init."""
        self.start_error = ""
        """Why the engine's init could not start the program."""
        if terminal:
            tty.setraw(0)

    def forward_resizes(self, resize: Callable[[int, int], Any]) -> None:
        """Tells the engine the size of our terminal, now and whenever it changes."""

        def send_size(*_: object) -> None:
            size = os.get_terminal_size(0)
            with contextlib.suppress(EngineError):  # it has just ended
                resize(size.lines, size.columns) if size.lines else None

        signal.signal(signal.SIGWINCH, send_size)
        send_size()

    def run(self, stream: Stream) -> None:
        """Copies data until the engine closes its end."""
        connection, unsent = stream.socket, b""
        connection.settimeout(None)
        self._write_frames(stream.take_buffered())
        while True:
            poll = select.poll()
            poll.register(connection, select.POLLIN | (select.POLLOUT if unsent else 0))
            if self._stdin and not unsent:
                poll.register(0, select.POLLIN)
            ready = dict(poll.poll())
            stream_events = ready.get(connection.fileno(), 0)
            if stream_events & ~select.POLLOUT:
                piece = _receive_chunk(connection)
                if not piece:
                    self._flush_pending()
                    return
                self._write_frames(piece)
            if 0 in ready:
                unsent = self._read_stdin(connection)
            elif stream_events & select.POLLOUT:
                unsent = unsent[connection.send(unsent[:_CHUNK]) :]

    def _read_stdin(self, connection: Any) -> bytes:
        piece = b""
        with contextlib.suppress(OSError):  # the other end of the terminal is closed
            piece = os.read(0, _CHUNK)
        if not piece:
            self._stdin = False
            with contextlib.suppress(OSError):
                connection.shutdown(1)
        return piece

    def _write_frames(self, piece: bytes) -> None:
        if self._terminal:
            self._write_output(1, piece)
            return
        self._frames += piece
        while len(self._frames) >= _FRAME_HEADER_SIZE:
            size = int.from_bytes(self._frames[4:_FRAME_HEADER_SIZE], "big")
            payload = self._frames[_FRAME_HEADER_SIZE : _FRAME_HEADER_SIZE + size]
            self._write_output(2 if self._frames[0] == 2 else 1, payload)
            if len(payload) < size:  # the rest still belongs to this frame
                self._frames = self._frames[:4] + (size - len(payload)).to_bytes(4, "big")
                return
            self._frames = self._frames[_FRAME_HEADER_SIZE + size :]

    def _write_output(self, fd: int, data: bytes) -> None:
        if not self._output_started and data:
            self._pending, data = b"", self._pending + data
            if b"\n" not in data and data.startswith(_INIT_ERROR_PREFIXES):
                self._pending = data
                return
            if match := _INIT_EXEC_ERROR.match(data):
                self.start_error = match[1].decode(errors="replace")
                return
            self._output_started = True
        _write(fd, data)

    def _flush_pending(self) -> None:
        """At the end of the stream: handles the output that was held back."""
        pending, self._pending = self._pending, b""
        if match := _INIT_EXEC_ERROR.match(pending):
            self.start_error = match[1].decode(errors="replace")
        elif pending:
            _write(1 if self._terminal else 2, pending)


def _receive_chunk(connection: Any) -> bytes:
    """The next piece; b"" at the end and after any error."""
    with contextlib.suppress(OSError):
        return bytes(connection.recv(_CHUNK))
    return b""


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    with contextlib.suppress(BrokenPipeError):
        while rest:
            rest = rest[os.write(fd, rest) :]


# ---------------------------------------------------------------- one more program in it


def exec_in_container(engine_spec: EngineRunSpec, argv: Sequence[str], *, terminal: bool) -> str:
    """In a fork of the pod host whose stdin, stdout and stderr are the client's: runs a program in the container to its end.
    Returns only if it could not be started, with the reason."""
    engine = connect_engine(engine_spec["socket"])
    exec_config = {
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": terminal,
        "Cmd": argv,
    }
    exec_config |= {"Env": ["TERM=xterm"]} if terminal else {}
    try:
        exec_id = engine.request("POST", f"/containers/{engine_spec['name']}/exec", exec_config)["Id"]
        stream, _ = engine.open_stream("POST", f"/exec/{exec_id}/start", {"Detach": False, "Tty": terminal})
    except EngineError as error:
        return start_error_message(error, engine.name)
    state = _wait_exec_started(engine, exec_id)
    if not state.get("Pid") and state.get("ExitCode") in (126, 127):
        with stream:
            match = _START_ERROR.search(_read_all(stream))
        return exec_error_message(argv[0], match[2] if match else _EXIT_CODE_MEANINGS[state["ExitCode"]])
    _close_other_fds(stream.socket.fileno())

    def on_hangup(*_: object) -> None:
        """Kills the program, if we may: engines do not end what they have exec'ed."""
        with contextlib.suppress(OSError, EngineError):
            os.kill(int(engine.request("GET", f"/exec/{exec_id}/json")["Pid"]), signal.SIGKILL)
        os._exit(129)

    signal.signal(signal.SIGHUP, on_hangup)
    pump = StreamPump(terminal, stdin=True)
    if terminal:
        pump.forward_resizes(
            lambda rows, columns: engine.request("POST", f"/exec/{exec_id}/resize?h={rows}&w={columns}")
        )
    with stream:
        pump.run(stream)
    with contextlib.suppress(EngineError):
        while (state := engine.request("GET", f"/exec/{exec_id}/json")).get("Running"):
            time.sleep(0.02)
    os._exit(KILLED_EXIT_CODE if state.get("ExitCode") is None else int(state["ExitCode"]))
