"""Stands in for `ssh` in pods of an MPI job: runs a command in another pod of the job, through `server.py` there.

    python -m rowlock.kubelet.remote_shell.client KEY_FILE [OPTIONS OF ssh] [USER@]HOST COMMAND…

If the host answers with the ssh protocol, a real sshd, the machine's own ssh takes over. Standard library only.
"""

import contextlib
import getopt
import os
import re
import socket
import sys
import threading
import time

from rowlock.kubelet.remote_shell import protocol
from rowlock.kubelet.remote_shell.protocol import BrokenTalk, FrameSender

PATIENCE = 60.0
"""Seconds to wait until a host has its name and listens."""
FAILED = 255
"""ssh's exit code when it failed itself, not the command."""
_OPTIONS = "1246AaB:b:Cc:D:E:e:F:fGgI:i:J:KkL:l:Mm:NnO:o:P:p:Q:qR:S:sTtVvW:w:XxYy"
"""The options of ssh, in getopt's form."""
_PORT = re.compile(r"[0-9]{1,5}")
_OURS = b"rowlock.kubelet.remote_shell"


class RealSsh(Exception):
    """The host has a real sshd."""


def parse(words: list[str]) -> tuple[str, str, tuple[int, ...]]:
    """Parses a command line of ssh: host, command, and ports to try. Raises SystemExit with a sentence."""
    try:
        options, rest = getopt.getopt(words, _OPTIONS)
    except getopt.GetoptError as error:
        raise SystemExit(f"ssh: {error}") from None
    if len(rest) < 2:
        raise SystemExit("ssh: this ssh runs commands in pods of the job, for mpirun: ssh HOST COMMAND")
    settings = [value.partition("=") for option, value in options if option == "-o"]
    ports = [value for option, value in options if option == "-p"]
    ports += [value.strip() for name, _, value in settings if name.strip().lower() == "port"]
    if ports and not _PORT.fullmatch(ports[0]):
        raise SystemExit(f"ssh: bad port {ports[0]!r}")
    return rest[0].rpartition("@")[2], " ".join(rest[1:]), (int(ports[0]),) if ports else protocol.PORTS


def connect(host: str, ports: tuple[int, ...]) -> tuple[socket.socket, str]:
    """Connects to the shell of a host, waiting up to PATIENCE; returns the connection and its nonce.

    Raises RealSsh if an sshd answers, SystemExit if nothing does."""
    deadline = time.monotonic() + PATIENCE
    while True:
        problem = ""
        for port in ports:
            try:
                return _greet(socket.create_connection((host, port), timeout=10.0))
            except (OSError, BrokenTalk) as error:
                problem = problem or f"port {port}: {error}"
        if time.monotonic() > deadline:
            raise SystemExit(f"ssh: connect to host {host}: {problem} (for {PATIENCE:.0f} s)")
        time.sleep(0.1)


def _greet(connection: socket.socket) -> tuple[socket.socket, str]:
    try:
        line = protocol.receive_line(connection)
    except (OSError, BrokenTalk):
        connection.close()
        raise
    if line.startswith(protocol.GREETING):
        connection.settimeout(None)
        return connection, line[len(protocol.GREETING) :].decode(errors="replace")
    connection.close()
    if line.startswith(b"SSH-"):
        raise RealSsh
    raise BrokenTalk("neither sshd nor a shell of rowlock listens there")


def run(key_file: str, host: str, command: str, ports: tuple[int, ...]) -> int:
    """Runs the command on the host; returns its exit code. Raises as `connect` does."""
    try:
        with open(key_file, "rb") as file:
            key = file.read(1 << 16)
    except OSError as error:
        raise SystemExit(f"ssh: the key of the job cannot be read: {error}") from None
    connection, nonce = connect(host, ports)
    with connection, contextlib.suppress(OSError, BrokenTalk):
        connection.sendall(protocol.write_request(key, nonce, command))
        sender = FrameSender(connection)
        threading.Thread(target=sender.copy_from, args=(protocol.STDIN, 0), daemon=True).start()
        for channel, data in protocol.receive_frames(connection):
            if channel == protocol.EXIT:
                return int(data)
            if channel in (protocol.STDOUT, protocol.STDERR):
                _write(channel, data)
    print(f"ssh: the connection to {host} ended before the command did", file=sys.stderr, flush=True)
    return FAILED


def _write(target: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the reader is gone
        while data:
            data = data[os.write(target, data) :]


def _real_ssh() -> str:
    """The path of the machine's or the image's own ssh; "" = there is none."""
    for step in os.environ.get("PATH", "").split(os.pathsep):
        path = f"{step}/ssh"
        if os.access(path, os.X_OK):
            with open(path, "rb") as file:
                if _OURS not in file.read(4096):
                    return path
    return ""


def main(argv: list[str]) -> int:
    key_file, words = argv[0], argv[1:]
    host, command, ports = parse(words)
    try:
        return run(key_file, host, command, ports)
    except RealSsh:
        program = _real_ssh() or sys.exit(f"ssh: {host} has a real sshd, and no ssh is installed here to reach it")
        os.execv(program, [program, *words])


def _say(error: SystemExit) -> int:
    """Fails like `ssh`: prints the sentence and returns its exit code."""
    if isinstance(error.code, str):
        print(error.code, file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except SystemExit as refused:
        code = _say(refused)
    sys.stdout.flush()
    os._exit(code)  # a thread may still wait for input that never comes
