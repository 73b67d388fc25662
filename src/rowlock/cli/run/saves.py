"""`rowlock run --rerun-on-save`: when a source file is saved, the job is stopped and submitted again.

Each start is a separate run in the history. The command watches the source files that existed when the run was submitted, and
Python files added to their directories. Files that a program writes (checkpoints, metrics) start no run.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from rowlock.cli.client import ServerClient
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.lookups import delete_job
from rowlock.cli.output import shorten_names, tell
from rowlock.cli.run.console import PIPED, Console
from rowlock.cli.run.following import Follow, follow_run
from rowlock.cli.run.request import HOST_IMAGE
from rowlock.cli.source.repository import list_files

_SUFFIXES = (".py", ".pyi", ".sh", ".bash", ".yaml", ".yml", ".toml", ".cfg", ".ini")
"""Suffixes of files that people write and programs rarely do. A file that the command names is watched with any suffix."""
_NOT_SOURCE = frozenset(("__pycache__", "node_modules", "site-packages"))
MAX_FILES = 20_000
"""Source files to watch at most: more hardly belong to one program."""
_MAX_LOOKED_AT = 200_000
"""Files to list at most in a directory outside git; inside git, git names the source files."""
INTERVAL = 0.1
"""Seconds between two scans of the files; 20 times the duration of a scan if that is longer."""
_SETTLED_S, _MAX_SETTLING_S = 0.05, 2.0
"""Seconds without a further change after which a save counts as complete, and the longest wait for that."""
_SHOWN = 3
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Python accepts bytecode of a file with the same size and modification second, which may be that of the version before the save."""

Stamp = tuple[int, int, int]
"""A file's inode, modification time in nanoseconds, and size in bytes."""


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


class SourceFiles:
    """The source files below a directory and their present state, with which later scans are compared."""

    def __init__(self, directory: str, words: Sequence[str] = (), base: str = "") -> None:
        """`words`: the words of the command; those that name files, relative to `base`, are watched too. Raises CommandError when
        there are too many files."""
        self.directory = os.path.realpath(directory)
        found = list_files(self.directory)
        paths = _walk(self.directory) if found is None else found
        files = {os.path.join(self.directory, path) for path in paths if path.endswith(_SUFFIXES)}
        files |= {path for word in words if os.path.isfile(path := os.path.join(os.path.realpath(base or "."), word))}
        if len(files) > MAX_FILES:
            raise CommandError(
                f"there are {len(files)} source files below {self.directory}, and at most {MAX_FILES} are watched: go to the "
                "directory of the program, or leave --rerun-on-save out"
            )
        self._directories = {os.path.dirname(path) for path in files} | {self.directory}
        self._files = files
        self._stamps, self._look_s = self._read(), 0.0

    def __len__(self) -> int:
        return len(self._stamps)

    def wait_change(self, is_over: Callable[[float], bool] = _sleep) -> list[str]:
        """Wait until a save is complete and return the changed files, relative to the directory. `is_over(seconds)` waits that long
        at most; when it returns true, the result is []."""
        while not is_over(max(INTERVAL, 20 * self._look_s)):
            began = time.monotonic()
            stamps, before = self._read(), self._stamps
            self._look_s = time.monotonic() - began
            until = began + self._look_s + _MAX_SETTLING_S
            while stamps != before and time.monotonic() < until:  # a large file is still being written
                time.sleep(_SETTLED_S)
                stamps, before = self._read(), stamps
            if changed := self._compare(stamps):  # empty if an editor moved a file away and back
                return changed
        return []

    def _compare(self, now: dict[str, Stamp]) -> list[str]:
        differ = {path for path, stamp in now.items() if self._stamps.get(path) != stamp}
        return sorted(os.path.relpath(path, self.directory) for path in differ | (self._stamps.keys() - now.keys()))

    def _read(self) -> dict[str, Stamp]:
        stamps = {}
        for path in self._files | _python_files(self._directories):
            with contextlib.suppress(OSError):  # deleted
                status = os.stat(path)
                stamps[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
        return stamps


def _python_files(directories: Iterable[str]) -> set[str]:
    found = set()
    for directory in directories:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            found |= {entry.path for entry in entries if entry.name.endswith(".py") and entry.name[0] != "."}
    return found


def _walk(top: str) -> list[str]:
    """The files below a directory outside git, without virtual environments and hidden files. Raises CommandError for too many."""
    found: list[str] = []
    for directory, inner, files in os.walk(top):
        inner[:] = [
            name
            for name in inner
            if name[0] != "." and name not in _NOT_SOURCE and not os.path.exists(f"{directory}/{name}/pyvenv.cfg")
        ]
        found += [os.path.join(directory, name) for name in files if name[0] != "."]
        if len(found) > _MAX_LOOKED_AT:
            raise CommandError(
                f"there are more than {_MAX_LOOKED_AT} files below {top}, which is in no git repository: go to the directory of the "
                "program, or leave --rerun-on-save out"
            )
    return found


class _ForegroundRun:
    """One run, which ends when a source file is saved."""

    def __init__(self, files: SourceFiles) -> None:
        self.name, self.changed, self._files = "", list[str](), files
        self._is_over, self.is_interrupted = threading.Event(), False

    def follow(self, line: CommandLine, server: ServerClient, name: str, identity: str, console: Console) -> int:
        """Like `follow_run`, but a save deletes the job and thereby ends the following."""
        self.name = name
        own = ServerClient(server.url, server.directory)  # a connection belongs to one thread
        thread = threading.Thread(target=self._delete_when_saved, args=(own, identity), daemon=True)
        thread.start()
        try:
            return follow_run(line, server, name, identity, console, on_interrupt=self._note_interrupt)
        except BaseException:
            self.is_interrupted = True
            raise
        finally:
            self._is_over.set()
            thread.join()

    def _note_interrupt(self) -> None:
        """After Ctrl-C the user decides what happens to the job, so a save no longer deletes it."""
        self.is_interrupted = True
        self._is_over.set()

    def _delete_when_saved(self, server: ServerClient, identity: str) -> None:
        changed = self._files.wait_change(self._is_over.wait)
        if not changed or self._is_over.is_set():
            return
        self.changed = changed
        tell(f"Saved: {shorten_names(changed, _SHOWN)}. Job {self.name} is stopped, and runs again.")
        # The job may be gone already. If the server has stopped, the thread that follows the log reports it.
        with contextlib.suppress(CommandError):
            delete_job(server, identity, "rowlock run --rerun-on-save")


def check(line: CommandLine, console: Console) -> None:
    """Raise CommandError when other flags exclude --rerun-on-save."""
    other = next((f"--{name}" for name in ("detach", "rm", "tty") if getattr(line, name)), "")
    other = "--debug" if line.debug_rank is not None else other
    if other:
        raise CommandError(f"--rerun-on-save stays and follows each run to its end: leave {other} out", 2)
    if line.image != HOST_IMAGE:
        raise CommandError(
            "--rerun-on-save is for programs of this machine: pods of an image have the image's files. Leave --image out",
            2,
        )
    if console.kind == PIPED:
        raise CommandError(
            "--rerun-on-save runs the command again, and what is piped in can be read once: leave it out", 2
        )


def run_on_save(line: CommandLine, command: Sequence[str], start: Callable[[Follow], int]) -> int:
    """Run the command, and again after each save, until Ctrl-C. `start` submits the job and follows it with the given function.
    Returns the exit code of the last run. Raises CommandError when the first submit is refused."""
    name, code = "", 0
    if _NO_BYTECODE not in os.environ and not any(one.partition("=")[0] == _NO_BYTECODE for one in line.env):
        line.set_values(env=[*line.env, f"{_NO_BYTECODE}=1"])
    while True:
        files = SourceFiles(line.source or line.working_dir or os.getcwd(), command, line.working_dir)
        run = _ForegroundRun(files)  # made before the submit, so that it sees edits during the submit
        try:
            code = start(run.follow)
        except CommandError as error:
            if run.name or not name:
                raise
            tell(f"{error}. Nothing was submitted.")
        else:
            if run.is_interrupted or not run.name:
                return code
        if not run.changed:
            try:
                tell(f"Waiting until one of {len(files)} source files in {files.directory} is saved; Ctrl-C ends this.")
                tell(f"Saved: {shorten_names(files.wait_change(), _SHOWN)}.")
            except KeyboardInterrupt:
                return code
        name = run.name or name
        line.set_values(name=name, replace=True)
