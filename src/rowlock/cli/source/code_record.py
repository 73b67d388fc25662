"""Records the code of a run when it is submitted: the commit and a snapshot of its repository, the interpreter and its
packages.

Snapshots and package lists stay in the data directory of this machine; the job contains only their ids. `rowlock diff` and
`rowlock rerun --exact` read them. A thread records while the command talks to the server, so that a submit hardly waits.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

from rowlock.cli.grammar import CommandError
from rowlock.cli.source.repository import find_repository
from rowlock.cli.source.snapshot import SourceStore

_PATIENCE = 3.0
"""Seconds that a submit waits at most for each of its two threads. The first snapshot of a large repository takes longer; the next
one reuses its work."""
_LONGEST = 20.0
"""Seconds that one call of git or of the interpreter may take."""
_ASK_PYTHON = "import sys; print(sys.version.split()[0], *sys.path, sep='\\0')"


class CodeRecording:
    """Starts recording in threads when constructed; `result` returns what they have found. Without `packs` it records only the
    interpreter and its packages, because the caller copies the code."""

    def __init__(
        self, data_directory: str, directory: str, command: list[str], environ: Mapping[str, str], *, packs: bool = True
    ) -> None:
        self._found: dict[str, Any] = {}
        self._note = ""
        self._threads = [
            threading.Thread(target=self._guard, args=work, daemon=True)
            for work in (
                *([(self._record_repository, data_directory, directory)] if packs else []),
                (self._record_python, data_directory, command, environ),
            )
        ]
        for thread in self._threads:
            thread.start()

    def _guard(self, work: Any, *argv: Any) -> None:
        """Run `work` and turn its errors into a note: a submit must not fail because its code cannot be recorded."""
        try:
            work(*argv)
        except (CommandError, OSError, subprocess.SubprocessError, ValueError) as error:
            self._note = f"not all of the code was kept: {error}"

    def _record_repository(self, data_directory: str, directory: str) -> None:
        repository = find_repository(directory)
        if repository is None:
            return
        self._found |= {"repository": repository.directory, "commit": repository.commit}
        store = SourceStore(data_directory, timeout=_LONGEST)
        snapshot = store.take(repository.directory)
        self._found |= {"snapshot": store.keep(snapshot.tree), "changedFiles": snapshot.changed}

    def _record_python(self, data_directory: str, command: list[str], environ: Mapping[str, str]) -> None:
        python = find_python(command, environ)
        if python is None:
            return
        version, packages = read_packages(python, environ)
        self._found |= {
            "python": python,
            "pythonVersion": version,
            "packages": _keep_packages(data_directory, packages),
        }

    def result(self) -> dict[str, Any]:
        """Wait up to `_PATIENCE` for each thread and return what was found: `repository`, `commit`, `changedFiles`, `snapshot`,
        `python`, `pythonVersion`, `packages`, and `note` when recording failed or took too long."""
        for thread in self._threads:
            thread.join(_PATIENCE)
        late = any(thread.is_alive() for thread in self._threads)
        note = "the code was not kept: it took too long; the next run keeps it" if late else self._note
        return dict(self._found) | ({"note": note[:1000]} if note else {})


def find_python(command: list[str], environ: Mapping[str, str]) -> str | None:
    """The Python interpreter that runs a command: its first word, or the one in the `#!` line of its script; None for other
    programs."""
    program = shutil.which(command[0], path=environ.get("PATH")) if command else None
    if program is None or os.path.basename(program).startswith("python"):
        return program
    with contextlib.suppress(OSError, UnicodeDecodeError), open(program, encoding="utf-8") as file:
        first = file.readline(512)
        words = first[2:].split() if first.startswith("#!") else []
        if words and os.path.basename(words[0]) == "env":
            words = [found for word in words[1:2] if (found := shutil.which(word, path=environ.get("PATH")))]
        if words and os.path.basename(words[0]).startswith("python"):
            return words[0]
    return None


def read_packages(python: str, environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """(version of the interpreter, {name: version} of the packages it can import). Raises OSError and `subprocess`'s
    errors."""
    done = subprocess.run(
        [python, "-c", _ASK_PYTHON], env=dict(environ), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST, check=True
    )  # fmt: skip
    version, *path = os.fsdecode(done.stdout).rstrip("\n").split("\0")
    packages: dict[str, str] = {}
    for directory in path:
        for name in glob.glob("*.dist-info", root_dir=directory) if directory.startswith("/") else ():
            package, _, release = name.removesuffix(".dist-info").partition("-")
            packages.setdefault(package.replace("_", "-").lower(), release)
    return version, packages


def _keep_packages(data_directory: str, packages: dict[str, str]) -> str:
    """Store a list of packages and return its id; equal lists share a file."""
    text = json.dumps(packages, sort_keys=True)
    identity = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = _packages_path(data_directory, identity)
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(file.name, path)
    return identity


def _packages_path(data_directory: str, identity: str) -> str:
    return os.path.join(data_directory, "sources", "packages", f"{identity}.json")


def kept_packages(data_directory: str, code: Mapping[str, Any]) -> dict[str, str] | None:
    """{name: version} of the packages of a run; None when this machine does not have the list."""
    identity = str(code.get("packages") or "")
    if not identity.isalnum():
        return None
    try:
        with open(_packages_path(data_directory, identity), encoding="utf-8") as file:
            return {str(name): str(version) for name, version in json.load(file).items()}
    except (OSError, ValueError):
        return None
