"""The server of the whole machine (`rowlock up --system`): its users find it in a public directory, and log in at a Unix socket
there, which tells the server their uid. The owner can read the data directory and uses the token there.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from rowlock.cli.grammar import CommandError

DEFAULT_DIRECTORY = "/run/rowlock"
_SOCKET = "login.sock"
_TIMEOUT = 20.0
_MAX_ANSWER = 64 * 1024


def system_directory() -> str:
    """The public directory in which the machine's server describes itself."""
    return os.environ.get("ROWLOCK_SYSTEM_DIR") or DEFAULT_DIRECTORY


def check_flags(line: Any) -> str:
    """The public directory for a server with these flags. Raises CommandError when users could not reach it."""
    if "kubeconfig" in line.given_flags:
        raise CommandError("--system is for a cluster on this machine; with --kubeconfig leave it out", 2)
    if not sys.platform.startswith("linux"):
        raise CommandError(
            "--system needs Linux: elsewhere the kernel does not tell the server which user is at the other end of a socket",
            2,
        )
    if os.geteuid() != 0:
        raise CommandError("--system needs root, for pods run as their project's user: `sudo rowlock up --system`", 2)
    return os.path.abspath(system_directory())


def systemd_unit(argv: list[str]) -> str:
    """A unit for /etc/systemd/system. It does not kill pods: they outlive the server, and the next one adopts them."""
    words = " ".join(_unit_word(word) for word in argv)
    return f"""[Unit]
Description=rowlock: distributed training for the users of this machine
After=network.target

[Service]
ExecStart={words}
Environment=ROWLOCK_SYSTEM_DIR={system_directory()}
UMask=0077
KillMode=process
TimeoutStopSec=60
Delegate=yes
Restart=on-failure

[Install]
WantedBy=multi-user.target"""


def _unit_word(word: str) -> str:
    """A word quoted for systemd, with `%` and `$` escaped."""
    import shlex

    return shlex.quote(word.replace("%", "%%").replace("$", "$$"))


def log_in(directory: str) -> dict[str, Any]:
    """The server's answer: `user`, `token`, `expiresIn` (seconds). Raises CommandError."""
    path = os.path.join(directory, _SOCKET)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(path)
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline(_MAX_ANSWER))
    except (OSError, ValueError) as error:
        raise CommandError(f"the machine's server does not answer at {path} ({error}): ask who runs it") from None
    if "token" not in answer:
        raise CommandError(f"the machine's server refuses the login: {answer.get('error', 'it gives no reason')}")
    return dict(answer)
