"""The files that say where the server is: written while it serves already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SERVE = """
import os, signal, sys, threading
from rowlock import serve, server_files

def note(path, text, write=server_files.write_file):
    write(path, text)
    print(path.name, threading.current_thread() is threading.main_thread(), flush=True)
    if path.name == "server.json":
        os.kill(os.getpid(), signal.SIGTERM)

server_files.write_file = note
serve.main(sys.argv[1:])
"""


def test_no_client_waits_for_a_slow_disk_that_syncs_them(tmp_path: Path) -> None:
    line = [sys.executable, "-c", _SERVE, "--data-dir", str(tmp_path / "data"), "--without", "kubelet"]
    said = subprocess.run(line, capture_output=True, text=True, timeout=200, check=False)
    assert "kubeconfig False" in said.stdout and "server.json False" in said.stdout, said.stdout + said.stderr
