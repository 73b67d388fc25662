"""The API server of a real cluster that a test started, killed with -9 and started again as it was."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import psutil


class ApiServer:
    """`with ApiServer(directory) as server: server.restart()`; the last one is ended with the block."""

    def __init__(self, directory: Path) -> None:
        entries = json.loads((directory / "pids.json").read_text())
        pid = next(int(entry["pid"]) for entry in entries if entry["name"] == "kube-apiserver")
        self._directory, self._process = directory, psutil.Process(pid)
        self._command, self._started = self._process.cmdline(), list[subprocess.Popen[bytes]]()

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.wait(200)

    def restart(self, *flags: str) -> None:
        """It answers some seconds later; nobody waits for that here. `flags` are added, for this start and later ones."""
        self._command += flags
        self._process.kill()
        self._process.wait(200)
        with (self._directory / "kube-apiserver.log").open("ab") as log:
            started = subprocess.Popen(self._command, cwd=self._directory, stdout=log, stderr=log)
        self._started.append(started)
        self._process = psutil.Process(started.pid)
