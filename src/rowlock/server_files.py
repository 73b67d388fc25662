"""Files by which a server says how to reach it: the owner's token and kubeconfig, and what users of the machine may read."""

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
    """What makes this process the server of this directory, and no other one: compared for equality (`cli/client.py`).

    A start time computed from the boot time drifts with the clock; start ticks and the boot's id do not. A copied
    directory has another inode, so its `server.json` does not lead to the original's server."""
    status = data_dir.stat()
    identity: dict[str, int | str] = {"startTicks": ticks(os.getpid()), "directory": f"{status.st_dev}:{status.st_ino}"}
    with suppress(OSError):
        identity["bootId"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return identity


def finish_certificates(process: subprocess.Popen[bytes], data_dir: Path) -> None:
    """Wait for the child that sees to the certificates, and pass on what it says. Raises Unavailable with its reason."""
    _, said = process.communicate()
    lines = (said or b"").decode(errors="replace").strip().splitlines()
    if process.returncode:
        why = lines[-1] if lines else f"the program ended with {process.returncode}"
        raise Unavailable(why if str(data_dir) in why else f"the certificates in {data_dir} could not be made: {why}")
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def ensure_token(path: Path) -> str:
    """The token in the file; made where there is none that protects anything (a crash can leave an empty file)."""
    with suppress(FileNotFoundError):
        token = path.read_bytes().decode("ascii", "replace").strip()
        if not token.isprintable() or not token.isascii():
            token = ""  # damaged: it could not be sent
        if len(token) >= users.MIN_TOKEN_LENGTH:
            path.chmod(0o600)
            return token
    token = secrets.token_urlsafe(32)
    write_file(path, token + "\n")
    return token


def write_file(path: Path, text: str) -> None:
    """Replace a file for its owner's eyes only."""
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
    """What users of this machine need to find the server: no secrets, for everybody to read."""
    facts = {
        "pid": os.getpid(), "url": url, **process_identity(directory), "version": __version__, "started": time.time(),
        "dataDir": str(data_dir),
    }  # fmt: skip
    for name, text in (("ca.crt", (data_dir / "ca.crt").read_text()), ("server.json", json.dumps(facts))):
        write_file(directory / name, text)
        (directory / name).chmod(0o644)
