"""The directory that the ranks of one job run in: a copy of a snapshot, one for all ranks and all their restarts.

Source files are copies. What git ignores (data sets, checkpoints, a virtual environment) is linked to where it really is, so
programs find it and what they write there stays. New files beside the source stay in the copy, and nobody deletes them.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rowlock.cli.source.snapshot import SourceSnapshot, SourceStore

_BYTECODE = re.compile(r"(^|/)__pycache__(/|$)|\.py[co]$")
"""Made anew from the copy's own files."""
_QUOTED_PATH = re.compile(r"""['"](/[^'"\n]+)['"]""")
_MOST_LISTED = 10_000
_TIDIED_AT_ONCE = 8
_FACTS = ".facts"
"""Behind a copy's name: the file that says what was in it at first, and of which job it is."""


class WorkingCopy(NamedTuple):
    """Where a job runs, and of which snapshot that is a copy."""

    path: str
    snapshot: SourceSnapshot

    @classmethod
    def make(cls, store: SourceStore, snapshot: SourceSnapshot, name: str) -> WorkingCopy:
        """A copy for the job of this name. What was begun is gone when it fails."""
        path = _new_directory(os.path.join(store.root, "runs"), f"{name}-{snapshot.tree[:8]}")
        try:
            store.check_out(snapshot.tree, path)
            for left_out in snapshot.left_out:
                if not _BYTECODE.search(left_out):
                    _link(os.path.join(snapshot.directory, left_out), os.path.join(path, left_out))
            for empty in snapshot.empty:
                os.makedirs(os.path.join(path, empty), exist_ok=True)
            _write_facts(path, {"files": _listing(path)})
        except BaseException:
            shutil.rmtree(path)
            raise
        return cls(path, snapshot)

    def remove(self) -> None:
        """For a job that was never accepted."""
        _remove(self.path)

    def place_of(self, path: str) -> str | None:
        """Where the copy has a path of the source directory; None for any other path, and for what is only linked."""
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if not _is_in(self.snapshot.directory, path):
            return None
        place = os.path.normpath(os.path.join(self.path, os.path.relpath(path, self.snapshot.directory)))
        return place if os.path.exists(place) and _is_in(os.path.realpath(self.path), os.path.realpath(place)) else None

    def working_directory(self, here: str) -> str:
        """The directory for the command that would have run in `here`. An ignored directory is the real one."""
        return self.place_of(here) or os.path.realpath(here)

    def belongs_to(self, workload_id: str) -> None:
        """The job was accepted: when it is gone, a later run tidies up."""
        _write_facts(self.path, _read_facts(self.path) | {"workload": workload_id})

    def changed_files(self) -> list[str]:
        """Files that programs have made or changed in the copy, relative to it; the first ten thousand."""
        return _changed_files(self.path)

    def redirect(self, words: list[str]) -> list[str]:
        """The command with absolute paths of the source's own files replaced by those of the copy."""
        return [(self.place_of(word) if word.startswith("/") else None) or word for word in words]

    def python_path(self, environ: Mapping[str, str]) -> str:
        """PYTHONPATH for the ranks: that of the shell, and before it what `pip install -e` has made importable from the
        source directory; all of it from the copy. "" when there is nothing to say."""
        given = [entry for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        entries = [*_editable_directories(environ.get("PATH", "")), *given]
        moved = [(self.place_of(os.path.abspath(entry)), entry) for entry in entries]
        if not any(place for place, _ in moved):
            return ""
        return os.pathsep.join(dict.fromkeys(place or entry for place, entry in moved if place or entry in given))


def _is_in(directory: str, path: str) -> bool:
    return os.path.commonpath([directory, path]) == directory


def _new_directory(parent: str, name: str) -> str:
    os.makedirs(parent, mode=0o700, exist_ok=True)
    number = 0
    while True:
        path = os.path.join(parent, f"{name}-{number}" if number else name)
        try:
            os.mkdir(path)
        except FileExistsError:
            number += 1
            continue
        return path


def _write_facts(path: str, facts: dict[str, Any]) -> None:
    with open(f"{path}{_FACTS}.new", "w", encoding="utf-8") as file:
        json.dump(facts, file)
    os.replace(file.name, path + _FACTS)


def _read_facts(path: str) -> dict[str, Any]:
    with open(path + _FACTS, encoding="utf-8") as file:
        facts: dict[str, Any] = json.load(file)
    return facts


def _changed_files(path: str) -> list[str]:
    before = _read_facts(path)["files"]
    return sorted(name for name, stamp in _listing(path).items() if before.get(name) != stamp)


def _remove(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)  # another run may tidy up at the same moment
    with contextlib.suppress(FileNotFoundError):
        os.remove(path + _FACTS)


def tidy_up(store: SourceStore, is_gone: Callable[[str], bool]) -> None:
    """Removes copies of jobs that are gone, where programs wrote nothing; where they did, the copy is the user's. A few
    copies are looked at, drawn by chance: each in time, and none costs a run its start."""
    names = [name for name in os.listdir(os.path.join(store.root, "runs")) if name.endswith(_FACTS)]
    for name in random.sample(names, min(len(names), _TIDIED_AT_ONCE)):
        path = os.path.join(store.root, "runs", name.removesuffix(_FACTS))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            workload = _read_facts(path).get("workload")
            if workload is None or not is_gone(workload):
                continue
            if _changed_files(path):
                os.remove(path + _FACTS)
            else:
                _remove(path)


def _link(target: str, place: str) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if not os.path.lexists(place):
        os.symlink(target, place)


def _listing(top: str) -> dict[str, list[int]]:
    """Size and time of the files in a copy, without what links lead to."""
    listing: dict[str, list[int]] = {}
    for name, entry in _walk(top, ""):
        with contextlib.suppress(FileNotFoundError):
            facts = entry.stat(follow_symlinks=False)
            listing[name] = [facts.st_size, facts.st_mtime_ns]
        if len(listing) >= _MOST_LISTED:
            break
    return listing


def _walk(directory: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = prefix + entry.name
            if _BYTECODE.search(name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{name}/")
            else:
                yield name, entry


def _editable_directories(path: str) -> list[str]:
    """What `pip install -e` has added to the interpreter that `python` is: lines of .pth files, and the tables of the
    finders that newer installers write instead."""
    python = shutil.which("python", path=path)
    if python is None:
        return []
    found: list[str] = []
    root = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    for site in glob.glob(os.path.join(glob.escape(root), "lib", "python3*", "site-packages")):
        for name in glob.glob(os.path.join(glob.escape(site), "*.pth")):
            found += [line for line in _read(name).splitlines() if line.startswith("/")]
        for name in glob.glob(os.path.join(glob.escape(site), "__editable__*_finder.py")):
            found += [os.path.dirname(place) for place in _QUOTED_PATH.findall(_read(name))]
    return list(dict.fromkeys(found))


def _read(name: str) -> str:
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
