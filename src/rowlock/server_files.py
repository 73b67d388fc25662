"""Files that tell clients how to reach a server: the owner's token and kubeconfig, and public files for other local users."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from rowlock import __version__
from rowlock.accounts.private_file import write_private_file
from rowlock.authentication import users
from rowlock.errors import Unavailable
from rowlock.kubelet.shim.fact_files import ticks


def process_identity(data_dir: Path) -> dict[str, int | str]:
    """Identifies this process as the server of this directory; compared for equality (`cli/client.py`).

    A start time computed from the boot time drifts with the clock; start ticks and the boot id do not. A copied
    directory has another inode, so its `server.json` does not identify the original's server."""
    status = data_dir.stat()
    identity: dict[str, int | str] = {"startTicks": ticks(os.getpid()), "directory": f"{status.st_dev}:{status.st_ino}"}
    with suppress(OSError):
        identity["bootId"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return identity


def finish_certificates(process: subprocess.Popen[bytes], data_dir: Path) -> None:
    """Wait for the child process that makes the certificates, and print its output. Raises Unavailable with its error."""
    _, said = process.communicate()
    lines = (said or b"").decode(errors="replace").strip().splitlines()
    if process.returncode:
        why = lines[-1] if lines else f"the program ended with {process.returncode}"
        raise Unavailable(why if str(data_dir) in why else f"the certificates in {data_dir} could not be made: {why}")
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def ensure_token(path: Path) -> str:
    """The token in the file; created if the file is missing or its token too short (a crash can leave an empty file)."""
    with suppress(FileNotFoundError):
        token = path.read_bytes().decode("ascii", "replace").strip()
        if not token.isprintable() or not token.isascii():
            token = ""  # damaged: it could not be sent in a header
        if len(token) >= users.MIN_TOKEN_LENGTH:
            path.chmod(0o600)
            return token
    token = secrets.token_urlsafe(32)
    write_file(path, token + "\n")
    return token


def write_file(path: Path, text: str) -> None:
    """Replace a file that only its owner may read."""
    write_private_file(path, text.encode())


def kubeconfig(url: str, ca: Path, token: str) -> str:
    """A kubeconfig as JSON, which is YAML too. The namespace is the default project's."""
    context = {"cluster": "rowlock", "user": "rowlock", "namespace": "runai-default"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rowlock",
            "clusters": [{"name": "rowlock", "cluster": {"server": url, "certificate-authority": str(ca)}}],
            "contexts": [{"name": "rowlock", "context": context}],
            "users": [{"name": "rowlock", "user": {"token": token}}],
        },
        indent=2,
    )


def announce_to_local_users(data_dir: Path, url: str, directory: Path) -> None:
    """Write the files with which other users of this machine find the server: world-readable, without secrets."""
    facts = {
        "pid": os.getpid(), "url": url, **process_identity(directory), "version": __version__, "started": time.time(),
        "dataDir": str(data_dir),
    }  # fmt: skip
    for name, text in (("ca.crt", (data_dir / "ca.crt").read_text()), ("server.json", json.dumps(facts))):
        write_file(directory / name, text)
        (directory / name).chmod(0o644)
