"""Snapshots of source directories, stored in rowlock's own git repository below the data directory.

git implements `.gitignore`, stores equal contents once, and reads only files that have changed since the last snapshot of the
directory. The user's own repository is read and never written.
A snapshot's id is the id of a git tree, so `git --git-dir DATA_DIR/sources/store.git diff A B` shows how two snapshots differ.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import random
import shutil
import threading
from typing import NamedTuple

from rowlock.cli.grammar import CommandError
from rowlock.cli.source.repository import GIT_TIMEOUT, read_status, run_git, top_directory

SIZE_LIMIT = 512 << 20
"""Maximum bytes of a source directory. Code is far smaller; a larger directory contains data."""
_SHOWN = 5
KEPT_DAYS = 90
"""Days for which a snapshot is kept: as long as the archive keeps runs by default."""
_KEPT = "refs/snapshots/"
"""Prefix of the git refs of kept snapshots; the day and the snapshot's id follow."""
_PRUNE_CHANCE = 0.02
"""Probability that a run also deletes old snapshots, which takes about a second."""
_AS_THEY_ARE = "* -text -filter -ident -working-tree-encoding\n"
"""git attributes of the store: contents are stored unchanged, whatever the user's `.gitattributes` would convert."""


class SourceSnapshot(NamedTuple):
    """The content of a directory at one moment. `left_out`: relative paths that are not part of it (ignored files and directories,
    nested repositories). `files`: number of stored files. `empty`: its empty directories. `commit`: "" outside git and before
    the first commit."""

    directory: str
    tree: str
    files: int
    left_out: tuple[str, ...]
    empty: tuple[str, ...]
    commit: str
    changed: int
    """Number of files that differ from the commit, new ones included."""

    def nested_repositories(self) -> list[str]:
        """Relative paths of the git repositories within, submodules among them. They are left out, and a copy links to them."""
        top = self.directory
        return [path for path in self.left_out if os.path.lexists(os.path.join(top, path, ".git"))]


class SourceStore:
    """The git repository of snapshots in a data directory, created at its first use. `timeout`: seconds for one call of
    git."""

    def __init__(self, data_directory: str, timeout: float = GIT_TIMEOUT) -> None:
        if shutil.which("git") is None:
            raise CommandError(
                "--source packs with git, and there is no git on your PATH: install it, or leave --source out"
            )
        self._timeout = timeout
        self.data_directory = os.path.realpath(data_directory)
        self.root = os.path.join(data_directory, "sources")
        self.git_dir = os.path.join(self.root, "store.git")
        if not os.path.exists(os.path.join(self.git_dir, "info", "attributes")):
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            run_git("init", "--quiet", "--bare", "--template=", self.git_dir)
            os.makedirs(os.path.join(self.git_dir, "info"), exist_ok=True)
            with open(os.path.join(self.git_dir, "info", "attributes"), "w", encoding="utf-8") as file:
                file.write(_AS_THEY_ARE)

    def take(self, directory: str) -> SourceSnapshot:
        """Take a snapshot of the directory. Raises CommandError when it is too large or cannot be read."""
        directory = os.path.realpath(directory)
        repository = top_directory(directory)
        present, left_out, empty = self._list(directory, repository)
        _check_size(directory, present)
        try:
            tree = self._write_tree(directory, present)
        except CommandError:  # the index is damaged, or names contents that were deleted
            self._forget_index(directory)
            tree = self._write_tree(directory, present)
        commit = run_git("-C", directory, "rev-parse", "--verify", "HEAD", check=False).strip() if repository else ""
        status = read_status(directory, self._timeout) if commit else ""
        return SourceSnapshot(directory, tree, len(present), left_out, empty, commit, status.count("\n"))

    def restore(self, directory: str, tree: str, commit: str, changed: int) -> SourceSnapshot:
        """An earlier snapshot of the directory, taken at `commit` with `changed` files changed. Its left-out paths and empty
        directories are those that exist now; there are none if the directory is gone."""
        directory = os.path.realpath(directory)
        files = len(_paths(self._own("ls-tree", "-r", "-z", "--name-only", tree, environ={})))
        left_out, empty = self._list(directory, top_directory(directory))[1:] if os.path.isdir(directory) else ((), ())
        return SourceSnapshot(directory, tree, files, left_out, empty, commit, changed)

    def _list(self, directory: str, repository: str) -> tuple[set[str], tuple[str, ...], tuple[str, ...]]:
        """(source files, left-out paths, empty directories) of a directory. `repository`: the top of the working tree that contains
        it, "" outside git."""
        base = (
            ["-C", directory] if repository else ["-C", directory, "--git-dir", self.git_dir, "--work-tree", directory]
        )
        asked = [*base, "-c", "core.fsmonitor=false", "ls-files", "-z"]
        # Outside git, rowlock's store serves as the repository: list what is in the directory, not what the store's index names.
        known = ("--cached", "--others") if repository else ("--others",)

        def list_files(*flags: str) -> list[str]:
            return _paths(run_git(*asked, *flags, "--exclude-standard", timeout=self._timeout))

        files = list_files(*known)
        ignored = list_files("--others", "--ignored", "--directory")
        others = list_files("--others", "--directory")
        present = {path for path in files if os.path.lexists(os.path.join(directory, path))}
        nested = {path for path in present if path.endswith("/") or _is_directory(os.path.join(directory, path))}
        present -= nested
        ours = {path for path in present if os.path.join(directory, path).startswith(self.data_directory + "/")}
        if ours:  # the data directory itself is not source code
            present -= ours
            nested.add(os.path.relpath(self.data_directory, directory))
        own = {".git"} if os.path.lexists(os.path.join(directory, ".git")) else set()
        left_out = sorted({path.rstrip("/") for path in (*ignored, *nested)} | own)
        empty = sorted(path for path in others if path.endswith("/") and not os.listdir(os.path.join(directory, path)))
        return present, tuple(left_out), tuple(empty)

    def keep(self, tree: str, today: datetime.date | None = None) -> str:
        """Keep a snapshot after its job is gone, and return its id. Snapshots that are too old are deleted."""
        today = today or datetime.date.today()
        self._own("update-ref", f"{_KEPT}{today.isoformat()}/{tree}", tree, environ={})
        if random.random() < _PRUNE_CHANCE:
            self.prune(today)
        return tree

    def prune(self, today: datetime.date) -> None:
        """Delete snapshots that are older than `KEPT_DAYS`."""
        oldest = (today - datetime.timedelta(days=KEPT_DAYS)).isoformat()
        refs = self._own("for-each-ref", "--format=%(refname)", _KEPT, environ={}).split()
        old = [ref for ref in refs if ref.removeprefix(_KEPT) < oldest]
        for ref in old:
            self._own("update-ref", "-d", ref, environ={})
        if old:  # a concurrent run may have stored contents that no ref names yet
            self._own("gc", "--quiet", "--prune=1.hour.ago", environ={})

    def has(self, tree: str) -> bool:
        """Whether the store has the snapshot with this id."""
        if not tree or not all(letter in "0123456789abcdef" for letter in tree):
            return False
        return bool(run_git("--git-dir", self.git_dir, "cat-file", "-t", tree, check=False).strip() == "tree")

    def diff(self, before: str, after: str, *, patch: bool) -> str:
        """The difference of two snapshots as `git diff` prints it: with `patch` the patch, else one line per file."""
        how = "--patch" if patch else "--stat=100"
        return self._own("diff", "--no-color", "--no-ext-diff", "--no-textconv", how, before, after, environ={})

    def check_out(self, tree: str, destination: str) -> None:
        """Write the files of a snapshot into an existing directory. Raises CommandError."""
        index = f"{destination}.index"
        environ = {"GIT_INDEX_FILE": index}
        try:
            self._own("read-tree", tree, environ=environ)
            self._own("--work-tree", destination, "checkout-index", "--all", environ=environ, cwd=destination)
        finally:
            if os.path.exists(index):
                os.remove(index)

    def _write_tree(self, directory: str, files: set[str]) -> str:
        """Store the files as a git tree and return its id. git's index records size and times of every file, so that only changed
        files are read. Each concurrent run works on its own copy of the index."""
        index = self._index_path(directory)
        own = f"{index}.{os.getpid()}.{threading.get_ident()}"
        environ = {"GIT_INDEX_FILE": own}
        packing = ["-c", "core.compression=1"]
        if os.path.exists(index):
            shutil.copy2(index, own)  # copy2 keeps the mtime: git rereads files that changed in that second
        else:
            packing += [
                "-c",
                "core.bigFileThreshold=1",
            ]  # store contents in one pack: one file each takes four times as long
        try:
            stale = [path for path in _paths(self._own("ls-files", "-z", environ=environ)) if path not in files]
            update = ("--work-tree", directory, "update-index", "-z")
            if stale:
                self._own(*update, "--force-remove", "--stdin", environ=environ, text=stale, cwd=directory)
            add = ("--add", "--remove", "--replace", "--stdin")
            self._own(*packing, *update, *add, environ=environ, text=sorted(files), cwd=directory)
            tree = self._own("write-tree", environ=environ).strip()
            os.replace(own, index)
        finally:
            if os.path.exists(own):
                os.remove(own)
        return tree

    def _index_path(self, directory: str) -> str:
        return os.path.join(self.root, f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]}.index")

    def _forget_index(self, directory: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._index_path(directory))

    def _own(self, *argv: str, environ: dict[str, str], text: list[str] | None = None, cwd: str | None = None) -> str:
        words = "".join(f"{path}\0" for path in text) if text is not None else None
        return run_git("--git-dir", self.git_dir, *argv, environ=environ, text=words, cwd=cwd, timeout=self._timeout)


def _paths(said: str) -> list[str]:
    return list(dict.fromkeys(path for path in said.split("\0") if path))


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _check_size(directory: str, files: set[str]) -> None:
    """Raise CommandError with the largest files when the files exceed SIZE_LIMIT."""
    sizes = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # the file was deleted meanwhile
            sizes[path] = os.lstat(os.path.join(directory, path)).st_size
    total = sum(sizes.values())
    if total <= SIZE_LIMIT:
        return
    biggest = sorted(sizes, key=lambda path: (-sizes[path], path))[:_SHOWN]
    biggest = [path for path in biggest if sizes[path] >= total / 100] or biggest
    named = ", ".join(f"{path} ({sizes[path] / (1 << 20):.0f} MiB)" for path in biggest)
    raise CommandError(
        f"the source directory {directory} has {total / (1 << 20):.0f} MiB, and the limit is {SIZE_LIMIT >> 20} MiB; the biggest files are "
        f"{named}: add them to .gitignore (programs still find ignored files), or name a smaller directory"
    )
