"""The directory that the ranks of one job run in: a copy of a snapshot, one for all ranks and all their restarts.

Source files are copied. Files that git ignores (data sets, checkpoints, a virtual environment) become links to the originals, so
that programs find them and write to them. New files next to the source stay in the copy, which is then not deleted.
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
"""Bytecode is not copied: Python writes it again from the copy's own files."""
_QUOTED_PATH = re.compile(r"""['"](/[^'"\n]+)['"]""")
_MOST_LISTED = 10_000
_TIDIED_AT_ONCE = 8
_FACTS = ".facts"
"""Suffix of the file that lists a copy's initial content and names its job."""


class WorkingCopy(NamedTuple):
    """The directory in which a job runs, and the snapshot of which it is a copy."""

    path: str
    snapshot: SourceSnapshot

    @classmethod
    def make(cls, store: SourceStore, snapshot: SourceSnapshot, name: str) -> WorkingCopy:
        """Make a copy for the job of this name; a failed attempt is deleted."""
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
        """Delete the copy of a job that was not accepted."""
        _remove(self.path)

    def place_of(self, path: str) -> str | None:
        """The place in the copy of a path in the source directory; None for other paths and for links."""
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if not _is_in(self.snapshot.directory, path):
            return None
        place = os.path.normpath(os.path.join(self.path, os.path.relpath(path, self.snapshot.directory)))
        return place if os.path.exists(place) and _is_in(os.path.realpath(self.path), os.path.realpath(place)) else None

    def working_directory(self, here: str) -> str:
        """The directory of the copy that corresponds to `here`; `here` itself for an ignored directory."""
        return self.place_of(here) or os.path.realpath(here)

    def belongs_to(self, workload_id: str) -> None:
        """Record the id of the accepted job, so that a later run can delete the copy when the job is gone."""
        _write_facts(self.path, _read_facts(self.path) | {"workload": workload_id})

    def changed_files(self) -> list[str]:
        """Relative paths of files that programs have created or changed in the copy; at most ten thousand."""
        return _changed_files(self.path)

    def redirect(self, words: list[str]) -> list[str]:
        """The command, with absolute paths of copied files replaced by those in the copy."""
        return [(self.place_of(word) if word.startswith("/") else None) or word for word in words]

    def python_path(self, environ: Mapping[str, str]) -> str:
        """PYTHONPATH for the ranks: directories that `pip install -e` made importable from the source directory, then that of the
        shell, all moved to the copy. "" when nothing changes."""
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
    shutil.rmtree(path, ignore_errors=True)  # another run may delete it at the same moment
    with contextlib.suppress(FileNotFoundError):
        os.remove(path + _FACTS)


def tidy_up(store: SourceStore, is_gone: Callable[[str], bool]) -> None:
    """Delete copies of deleted jobs into which programs wrote nothing; the others belong to the user. Each call checks only a few
    random copies, so that it does not delay a run and every copy is checked eventually."""
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
    """Size and time of the files in a copy; links are not followed."""
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
    """The directories that `pip install -e` has added to the interpreter on this PATH: lines of .pth files, and the tables of the
    import finders that newer installers write."""
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
