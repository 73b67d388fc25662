"""Stands in for `sshd` in a node of an MPI job: runs commands for clients that hold the job's key, until it is terminated.

    python -m rowlock.kubelet.remote_shell.server KEY_FILE PORT [ADDRESS]

Commands run in the container, with its variables; their processes are descendants of this one and end with it. Standard
library only.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from typing import IO

from rowlock.kubelet.remote_shell import protocol
from rowlock.kubelet.remote_shell.protocol import BrokenTalk, FrameSender

PATIENCE = 20.0
"""Seconds to wait for a client's request after it has connected."""
_GRACE = 5.0
"""Seconds that a program has to end after its client is gone."""
_LAST_OUTPUT = 1.0
"""Seconds to read the output of an ended command: processes that it left running may keep its pipes open."""
_REFUSED = 255
"""The exit code of `ssh` when no command was run."""


def serve(key_file: str, port: int, address: str) -> None:
    """Listens for ever at one IPv4 address, or ("") at all that the pod has. Raises OSError where the port is taken."""
    is_dual = not address and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    listener = socket.create_server((address, port), family=family, backlog=128, dualstack_ipv6=is_dual)
    print(f"listening on port {listener.getsockname()[1]} for mpirun, in place of sshd", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve_safely, args=(connection, key_file), daemon=True).start()


def _serve_safely(connection: socket.socket, key_file: str) -> None:
    with connection, contextlib.suppress(OSError, BrokenTalk):  # a probe, another program, or a lost client
        _serve_connection(connection, key_file)


def _serve_connection(connection: socket.socket, key_file: str) -> None:
    connection.settimeout(PATIENCE)
    nonce, sender = secrets.token_hex(16), FrameSender(connection)
    connection.sendall(protocol.GREETING + nonce.encode() + b"\n")
    proof, command = protocol.read_request(protocol.receive_line(connection))
    try:
        with open(key_file, "rb") as file:
            key = file.read(1 << 16)
    except OSError as error:
        return _refuse(connection, sender, f"the key of the job cannot be read: {error}")
    if not key or not protocol.is_proven(key, nonce, command, proof):
        return _refuse(connection, sender, "the client has another key than this job")
    connection.settimeout(None)
    try:
        program = _start(command)
    except (OSError, ValueError) as error:
        return _refuse(connection, sender, f"the command cannot start: {error}")
    return _carry(connection, sender, program)


def _refuse(connection: socket.socket, sender: FrameSender, why: str) -> None:
    print(f"refused a command: {why}", flush=True)
    sender.send(protocol.STDERR, f"{why}\n".encode())
    sender.send(protocol.EXIT, str(_REFUSED).encode())
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(1 << 16):
        continue  # closing with unread input would discard the answer


def _start(command: str) -> "subprocess.Popen[bytes]":
    words, pipe = ["/bin/sh", "-c", command], subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)


def _carry(connection: socket.socket, sender: FrameSender, program: "subprocess.Popen[bytes]") -> None:
    """Copies data both ways until the command has ended or its client is gone."""
    readers = [
        threading.Thread(target=_pass_output, args=(sender, channel, stream), daemon=True)
        for channel, stream in ((protocol.STDOUT, program.stdout), (protocol.STDERR, program.stderr))
    ]
    feeder = threading.Thread(target=_feed, args=(connection, program), daemon=True)
    for thread in (*readers, feeder):
        thread.start()
    code = program.wait()
    for reader in readers:
        reader.join(_LAST_OUTPUT)
    sender.send(protocol.EXIT, str(code if code >= 0 else 128 - code).encode())
    connection.shutdown(socket.SHUT_WR)
    feeder.join(PATIENCE)  # until the client has read everything and closes


def _pass_output(sender: FrameSender, channel: int, stream: IO[bytes] | None) -> None:
    """Copies output to the client. The reader closes the pipe itself, so that its number is not reused during a read."""
    if stream is not None:
        with stream:
            sender.copy_from(channel, stream.fileno())


def _feed(connection: socket.socket, program: "subprocess.Popen[bytes]") -> None:
    """Copies the client's input; ends the command if the client disconnects first."""
    stdin = program.stdin
    assert stdin is not None
    with contextlib.suppress(OSError, BrokenTalk):
        for channel, data in protocol.receive_frames(connection):
            if channel == protocol.STDIN:
                with contextlib.suppress(OSError, ValueError):  # the command may have closed its input
                    os.write(stdin.fileno(), data) if data else stdin.close()
    if program.poll() is None:
        _end(program)


def _end(program: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(_GRACE)
            return


def main(argv: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # as sshd does
    key_file, port, address = argv[0], int(argv[1]), "".join(argv[2:])
    try:
        serve(key_file, port, address)
    except OSError as error:
        raise SystemExit(f"cannot listen on port {port} in place of sshd: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
