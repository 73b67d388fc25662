"""A container's program where a container engine runs it, as its shim sees it.

What the shim starts instead of the program is this: a fork that creates the container, is attached to it before it
starts, passes everything on between it and its own stdin, stdout and stderr, and ends when it has ended. So logs,
terminals, stop and exit facts keep the shim's one path. SIGTERM is passed on; when the fork has gone, for whatever
reason, `ended` (in the shim) asks the engine how the container ended and removes it. Standard library only.
"""

import contextlib
import json
import os
import re
import select
import signal
import time
import tty
from collections.abc import Callable
from typing import Any

from rowlock.cluster.node.engine import Engine, EngineError, Stream
from rowlock.cluster.node.facts import of_run, ticks, write_fact

AWAY = 10.0
"""Seconds in which an engine that has gone may come back without the container being given up."""
KILLED = 137
_STARTED = re.compile(r'(exec: ".*?"): (?:stat [^:]*: )?(.*?)(?:: unknown)?$')
_REFUSED = re.compile(
    rb"(?:\[FATAL tini \(\d+\)\] exec .* failed: |(?:ERROR )?\(?catatonit.*?: )(No such file[^\r\n]*|Perm[^\r\n]*)"
)
"""What the engine's init says when there is no such program."""
_INITS = (b"[FATAL tini (", b"ERROR catatonit", b"ERROR (catatonit", b"catatonit")
"""How such a line begins; it comes in several pieces."""
_CODES = {126: "permission denied", 127: "no such file or directory"}
"""What the exit code of a program that could not begin means, where the engine does not say it better."""
_CHUNK = 1 << 16
_FRAME = 8
"""Bytes before each piece of output without a terminal: which stream it is of, and how long."""


def engine_of(spec: dict[str, Any]) -> Engine:
    where = spec["engine"]["socket"]
    return Engine(where["path"], where["name"])


def begin(spec: dict[str, Any]) -> str:
    """In the shim's fork, where another program would be exec'ed: runs the container to its end and never returns,
    except with why it could not be started."""
    engine, wanted, console = engine_of(spec), spec["engine"], spec["console"]
    name = wanted["name"]
    try:
        for path in wanted["touch"]:
            with open(path, "w"):
                os.chmod(path, 0o666)
        if wanted.get("sandbox"):
            _sandbox(engine, wanted["sandbox"])
        engine.ask("POST", f"/containers/create?name={name}", wanted["create"])
        stream = _attached(engine, spec)
        engine.ask("POST", f"/containers/{name}/start")
    except EngineError as error:
        with contextlib.suppress(EngineError):  # mostly there is none
            engine.ask("DELETE", f"/containers/{name}?force=1&v=1")
        return why_not(error)

    def on_term(*_: object) -> None:
        with contextlib.suppress(EngineError):  # it has just ended
            engine.ask("POST", f"/containers/{name}/kill?signal={wanted['stop_signal']}")

    signal.signal(signal.SIGTERM, on_term)
    began = f"{of_run(spec, 'start')}.begun"
    with open(began) as file:
        fact = json.load(file)
    write_fact(began, fact | _began(engine, name))
    _keep_only(stream.socket.fileno())
    pump = Pump(bool(console.get("tty")), stdin=bool(console.get("stdin")))
    if console.get("tty"):
        pump.sized(lambda rows, columns: engine.ask("POST", f"/containers/{name}/resize?h={rows}&w={columns}"))
    os._exit(_to_its_end(engine, spec, stream, pump))


def _keep_only(kept: int) -> None:
    """As exec would: nothing of the shim's stays open. So the shim learns that the program runs."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # the listing's own descriptor
                os.close(int(name))


def _sandbox(engine: Engine, wanted: dict[str, Any]) -> None:
    """What holds the pod's network and memory volumes, however often its containers start; there already, mostly."""
    for volume in wanted["volumes"]:
        engine.ask("POST", "/volumes/create", volume)
    patience = time.monotonic() + AWAY
    while True:
        try:
            engine.ask("POST", f"/containers/create?name={wanted['name']}", wanted["create"])
        except EngineError as error:
            if error.status != 409 and "already in use" not in str(error):
                raise
        try:
            engine.ask("POST", f"/containers/{wanted['name']}/start")
            return
        except EngineError as error:  # 404: another container of the pod is just making it
            if error.status != 404 or time.monotonic() > patience:
                raise
            time.sleep(0.02)


def _attached(engine: Engine, spec: dict[str, Any]) -> Stream:
    stdin = 1 if spec["console"].get("stdin") else 0
    path = f"/containers/{spec['engine']['name']}/attach?stream=1&stdout=1&stderr=1&stdin={stdin}"
    return engine.open("POST", path)[0]


def _to_its_end(engine: Engine, spec: dict[str, Any], stream: Stream, pump: "Pump") -> int:
    """Passes on until the container has ended; its exit code. An engine that is restarted beneath it is waited for."""
    name = spec["engine"]["name"]
    while True:
        with stream:
            pump.run(stream)
        if pump.refused:
            write_fact(of_run(spec, "refused"), {"why": pump.refused})
        try:
            return int((engine.ask("POST", f"/containers/{name}/wait", patience=None) or {}).get("StatusCode", KILLED))
        except EngineError as error:
            again = None if error.status else _reattached(engine, spec)
            if again is None:
                return KILLED
            stream = again


def _reattached(engine: Engine, spec: dict[str, Any]) -> Stream | None:
    """An engine that has gone may come back, and find its containers alive."""
    given_up = time.monotonic() + AWAY
    while time.monotonic() < given_up:
        with contextlib.suppress(EngineError):
            running = _state(engine, spec["engine"]["name"]).get("Running")
            return _attached(engine, spec) if running else None
        time.sleep(0.1)
    return None


def _state(engine: Engine, name: str) -> dict[str, Any]:
    return dict((engine.ask("GET", f"/containers/{name}/json") or {}).get("State") or {})


def why_not(error: EngineError) -> str:
    """The engine's sentence, without its own insides."""
    if error.status == 0:
        return f"{error}: start the engine again, or give the pod an image that runs as a process"
    found = _STARTED.search(str(error))
    return f"{found[1]}: {found[2]}" if found else str(error)


def _began(engine: Engine, name: str) -> dict[str, Any]:
    """What `start.N` says of it. The pid is the container's own where this user may look into it (stacks, ports), else
    the fork's."""
    found: dict[str, Any] = {"started": time.time()}
    with contextlib.suppress(EngineError, KeyError):
        said = engine.ask("GET", f"/containers/{name}/json")
        found["container"], pid = f"{engine.name}://{said['Id']}", int(said["State"]["Pid"])
        if pid and may_enter(pid, said["Id"]):
            found |= {"pid": pid, "ticks": ticks(pid)}
    return found


def may_enter(pid: int, container: str) -> bool:
    """Is that process of this machine, and may we into its namespaces? (An engine may live in a virtual machine.)"""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cgroup") as file:
            if container not in file.read():
                return False
        os.close(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        return True
    return False


def ended(spec: dict[str, Any], code: int) -> dict[str, Any]:
    """In the shim, when the fork has gone: how the container ended, as the exit fact says it; and it is removed."""
    engine, name = engine_of(spec), spec["engine"]["name"]
    found: dict[str, Any] = {"code": code}
    try:
        state = _state(engine, name)
        if state.get("Running"):
            found = {"code": KILLED}
        elif state:
            found["code"] = int(state.get("ExitCode", code))
            if state.get("OOMKilled") and found["code"]:
                found |= {"reason": "OOMKilled", "message": _overuse(spec)}
    except EngineError as error:
        if error.status == 0:
            why = (
                f"{error}: how the container ended is not known; what still runs of it is ended when the engine is back"
            )
            found = {"code": KILLED, "reason": "ContainerStatusUnknown", "message": why}
    found |= _refused(spec)
    found["signal"] = found["code"] - 128 if 128 < found["code"] < 160 else 0
    with contextlib.suppress(EngineError):  # the kubelet sweeps what is left
        engine.ask("DELETE", f"/containers/{name}?force=1&v=1")
    return found


def _refused(spec: dict[str, Any]) -> dict[str, Any]:
    """Of a program that is not there: in the words of every other start that failed."""
    try:
        with open(of_run(spec, "refused")) as file:
            why = str(json.load(file)["why"])
    except FileNotFoundError:
        return {}
    return {"code": 128, "reason": "StartError", "message": _not_there(spec["argv"][0], why)}


def _not_there(program: str, why: str) -> str:
    """The sentence that a process would have got."""
    if "/" not in program and "o such file" in why:
        why = "executable file not found in $PATH"
    return f'exec: "{program}": {why[:1].lower()}{why[1:]}'


def _overuse(spec: dict[str, Any]) -> str:
    limit = int(spec["engine"]["create"]["HostConfig"].get("Memory") or 0)
    return (
        f"more memory wanted than its limit of {limit / (1 << 20):.1f}Mi (ended by {spec['engine']['socket']['name']})"
    )


def _executed(engine: Engine, exec_id: str) -> dict[str, Any]:
    """A program that has begun, or could not."""
    while True:
        state = dict(engine.ask("GET", f"/exec/{exec_id}/json"))
        if state.get("Pid") or not state.get("Running"):
            return state
        time.sleep(0.005)


def _all_of(stream: Stream) -> str:
    """What the engine says instead of a program."""
    return b"".join(iter(lambda: stream.recv(_CHUNK), b"")).decode(errors="replace").strip()


class Pump:
    """Passes on, both ways, between a stream of the engine and this process's stdin, stdout and stderr."""

    def __init__(self, terminal: bool, *, stdin: bool) -> None:
        self._terminal, self._stdin = terminal, stdin
        self._frames = b""
        self._said = False
        self._held = b""
        """The beginning of what may be a line of the engine's init."""
        self.refused = ""
        """Why the engine's init could not start the program."""
        if terminal:
            tty.setraw(0)

    def sized(self, resize: Callable[[int, int], Any]) -> None:
        """Tells the engine the size of our terminal, now and whenever it changes."""

        def tell(*_: object) -> None:
            size = os.get_terminal_size(0)
            with contextlib.suppress(EngineError):  # it has just ended
                resize(size.lines, size.columns) if size.lines else None

        signal.signal(signal.SIGWINCH, tell)
        tell()

    def run(self, stream: Stream) -> None:
        """Until the engine's end is closed."""
        connection, waiting = stream.socket, b""
        connection.settimeout(None)
        self._out(stream.early())
        while True:
            poll = select.poll()
            poll.register(connection, select.POLLIN | (select.POLLOUT if waiting else 0))
            if self._stdin and not waiting:
                poll.register(0, select.POLLIN)
            ready = dict(poll.poll())
            happened = ready.get(connection.fileno(), 0)
            if happened & ~select.POLLOUT:
                piece = _received(connection)
                if not piece:
                    self._end()
                    return
                self._out(piece)
            if 0 in ready:
                waiting = self._input(connection)
            elif happened & select.POLLOUT:
                waiting = waiting[connection.send(waiting[:_CHUNK]) :]

    def _input(self, connection: Any) -> bytes:
        piece = b""
        with contextlib.suppress(OSError):  # nobody has the other end of the terminal any more
            piece = os.read(0, _CHUNK)
        if not piece:
            self._stdin = False
            with contextlib.suppress(OSError):
                connection.shutdown(1)
        return piece

    def _out(self, piece: bytes) -> None:
        if self._terminal:
            self._say(1, piece)
            return
        self._frames += piece
        while len(self._frames) >= _FRAME:
            size = int.from_bytes(self._frames[4:_FRAME], "big")
            have = self._frames[_FRAME : _FRAME + size]
            self._say(2 if self._frames[0] == 2 else 1, have)
            if len(have) < size:  # the rest of it comes with the same head
                self._frames = self._frames[:4] + (size - len(have)).to_bytes(4, "big")
                return
            self._frames = self._frames[_FRAME + size :]

    def _say(self, fd: int, data: bytes) -> None:
        if not self._said and data:
            self._held, data = b"", self._held + data
            if b"\n" not in data and data.startswith(_INITS):
                self._held = data
                return
            if found := _REFUSED.match(data):
                self.refused = found[1].decode(errors="replace")
                return
            self._said = True
        _write(fd, data)

    def _end(self) -> None:
        """Nothing more will come: what was held back is looked at as it is."""
        held, self._held = self._held, b""
        if found := _REFUSED.match(held):
            self.refused = found[1].decode(errors="replace")
        elif held:
            _write(1 if self._terminal else 2, held)


def _received(connection: Any) -> bytes:
    """The next piece; none at the end, however that came."""
    with contextlib.suppress(OSError):
        return bytes(connection.recv(_CHUNK))
    return b""


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    with contextlib.suppress(BrokenPipeError):
        while rest:
            rest = rest[os.write(fd, rest) :]


# ---------------------------------------------------------------- one more program in it


def enter(inside: dict[str, Any], *, terminal: bool) -> str:
    """In a fork of the pod host whose stdin, stdout and stderr are the client's: runs a program in the container to its
    end and never returns, except with why it could not be started."""
    engine = engine_of(inside)
    wanted = {"AttachStdin": True, "AttachStdout": True, "AttachStderr": True, "Tty": terminal, "Cmd": inside["argv"]}
    wanted |= {"Env": ["TERM=xterm"]} if terminal else {}
    try:
        made = engine.ask("POST", f"/containers/{inside['engine']['name']}/exec", wanted)["Id"]
        stream, _ = engine.open("POST", f"/exec/{made}/start", {"Detach": False, "Tty": terminal})
    except EngineError as error:
        return why_not(error)
    state = _executed(engine, made)
    if not state.get("Pid") and state.get("ExitCode") in (126, 127):
        with stream:
            said = _STARTED.search(_all_of(stream))
        return _not_there(inside["argv"][0], said[2] if said else _CODES[state["ExitCode"]])
    _keep_only(stream.socket.fileno())

    def on_hangup(*_: object) -> None:
        """Engines do not end what they have executed: where we may, we do."""
        with contextlib.suppress(OSError, EngineError):
            os.kill(int(engine.ask("GET", f"/exec/{made}/json")["Pid"]), signal.SIGKILL)
        os._exit(129)

    signal.signal(signal.SIGHUP, on_hangup)
    pump = Pump(terminal, stdin=True)
    if terminal:
        pump.sized(lambda rows, columns: engine.ask("POST", f"/exec/{made}/resize?h={rows}&w={columns}"))
    with stream:
        pump.run(stream)
    with contextlib.suppress(EngineError):
        while (state := engine.ask("GET", f"/exec/{made}/json")).get("Running"):
            time.sleep(0.02)
    os._exit(KILLED if state.get("ExitCode") is None else int(state["ExitCode"]))
