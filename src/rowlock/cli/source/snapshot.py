"""Snapshots of source directories, kept by git in a repository of our own below the data directory.

git is the packer: it knows what `.gitignore` means, stores each content once, and reads again only what has changed since
the last snapshot of the directory. The user's repository is asked for its files and its commit; it is never written to.
A snapshot's id is that of a git tree, so `git --git-dir DATA_DIR/sources/store.git diff A B` shows what differs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from typing import NamedTuple

from rowlock.cli.grammar import CommandError

SIZE_LIMIT = 512 << 20
"""Bytes of a source directory: code is far below, data sets are far above."""
_SHOWN = 5
_GIT_TIMEOUT = 120
_AS_THEY_ARE = "* -text -filter -ident -working-tree-encoding\n"
"""Attributes of the store: contents go in and come out unchanged, whatever the user's `.gitattributes` converts."""


class SourceSnapshot(NamedTuple):
    """A directory as it was. `left_out` are paths relative to it that are no source: ignored files and directories, and
    repositories within. `files` counts those kept, `empty` are its empty directories. `commit` is "" outside git or before the first commit."""

    directory: str
    tree: str
    files: int
    left_out: tuple[str, ...]
    empty: tuple[str, ...]
    commit: str
    dirty: bool

    def annotations(self) -> dict[str, str]:
        """What the job's pods carry of it."""
        facts = {"rowlock.dev/source-snapshot": self.tree}
        if self.commit:
            facts |= {"rowlock.dev/source-commit": self.commit, "rowlock.dev/source-dirty": str(self.dirty).lower()}
        return facts


class SourceStore:
    """The repository of snapshots in a data directory; made when it is first used."""

    def __init__(self, data_directory: str) -> None:
        if shutil.which("git") is None:
            raise CommandError(
                "--source packs with git, and there is no git on your PATH: install it, or leave --source out"
            )
        self.data_directory = os.path.realpath(data_directory)
        self.root = os.path.join(data_directory, "sources")
        self.git_dir = os.path.join(self.root, "store.git")
        if not os.path.exists(os.path.join(self.git_dir, "info", "attributes")):
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            _git("init", "--quiet", "--bare", "--template=", self.git_dir)
            os.makedirs(os.path.join(self.git_dir, "info"), exist_ok=True)
            with open(os.path.join(self.git_dir, "info", "attributes"), "w", encoding="utf-8") as file:
                file.write(_AS_THEY_ARE)

    def take(self, directory: str) -> SourceSnapshot:
        """A snapshot of the directory. Raises CommandError when it is too large or cannot be read."""
        directory = os.path.realpath(directory)
        repository = _git("-C", directory, "rev-parse", "--show-toplevel", check=False).strip()
        base = (
            ["-C", directory] if repository else ["-C", directory, "--git-dir", self.git_dir, "--work-tree", directory]
        )
        asked = [*base, "-c", "core.fsmonitor=false", "ls-files", "-z"]
        # With a store that is not the directory's own, only what lies in the directory counts, not what an index names.
        known = ("--cached", "--others") if repository else ("--others",)
        files = _paths(_git(*asked, *known, "--exclude-standard"))
        ignored = _paths(_git(*asked, "--others", "--ignored", "--exclude-standard", "--directory"))
        others = _paths(_git(*asked, "--others", "--exclude-standard", "--directory"))
        present = {path for path in files if os.path.lexists(os.path.join(directory, path))}
        nested = {path for path in present if path.endswith("/") or _is_directory(os.path.join(directory, path))}
        present -= nested
        ours = {path for path in present if os.path.join(directory, path).startswith(self.data_directory + "/")}
        if ours:  # the cluster's own data are no source
            present -= ours
            nested.add(os.path.relpath(self.data_directory, directory))
        _check_size(directory, present)
        tree = self._write_tree(directory, present)
        commit = _git("-C", directory, "rev-parse", "--verify", "HEAD", check=False).strip() if repository else ""
        dirty = bool(commit) and bool(_git("-C", directory, "status", "--porcelain", "--", ".").strip())
        own = {".git"} if os.path.lexists(os.path.join(directory, ".git")) else set()
        left_out = sorted({path.rstrip("/") for path in (*ignored, *nested)} | own)
        empty = sorted(path for path in others if path.endswith("/") and not os.listdir(os.path.join(directory, path)))
        return SourceSnapshot(directory, tree, len(present), tuple(left_out), tuple(empty), commit, dirty)

    def check_out(self, tree: str, destination: str) -> None:
        """The files of a snapshot, as they were, in a directory that is there."""
        index = f"{destination}.index"
        environ = {"GIT_INDEX_FILE": index}
        try:
            self._own("read-tree", tree, environ=environ)
            self._own("--work-tree", destination, "checkout-index", "--all", environ=environ, cwd=destination)
        finally:
            if os.path.exists(index):
                os.remove(index)

    def _write_tree(self, directory: str, files: set[str]) -> str:
        """The index remembers size and times of every file, so that only what changed is read. A second run at the same
        moment has a copy of its own."""
        name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
        index = os.path.join(self.root, f"{name}.index")
        own = f"{index}.{os.getpid()}"
        environ = {"GIT_INDEX_FILE": own}
        if os.path.exists(index):
            shutil.copy2(index, own)  # with its time: git reads again what was written in the second of the index
        try:
            stale = [path for path in _paths(self._own("ls-files", "-z", environ=environ)) if path not in files]
            update = ("--work-tree", directory, "update-index", "-z")
            if stale:
                self._own(*update, "--force-remove", "--stdin", environ=environ, text=stale, cwd=directory)
            self._own(
                *update, "--add", "--remove", "--replace", "--stdin", environ=environ, text=sorted(files), cwd=directory
            )
            tree = self._own("write-tree", environ=environ).strip()
            os.replace(own, index)
        finally:
            if os.path.exists(own):
                os.remove(own)
        return tree

    def _own(self, *argv: str, environ: dict[str, str], text: list[str] | None = None, cwd: str | None = None) -> str:
        words = "".join(f"{path}\0" for path in text) if text is not None else None
        return _git("--git-dir", self.git_dir, *argv, environ=environ, text=words, cwd=cwd)


def _git(
    *argv: str,
    check: bool = True,
    environ: dict[str, str] | None = None,
    text: str | None = None,
    cwd: str | None = None,
) -> str:
    """What git says; file names that are no UTF-8 survive. GIT_* of the shell are of another repository."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *argv],
            env=clean | {"GIT_OPTIONAL_LOCKS": "0"} | (environ or {}),
            input=os.fsencode(text) if text is not None else None,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            timeout=_GIT_TIMEOUT,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"--source: git had not ended after {_GIT_TIMEOUT} s; name a smaller directory") from None
    if check and done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise CommandError(f"--source: git cannot pack the directory: {said[-1]}")
    return os.fsdecode(done.stdout) if not done.returncode else ""


def _paths(said: str) -> list[str]:
    return list(dict.fromkeys(path for path in said.split("\0") if path))


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _check_size(directory: str, files: set[str]) -> None:
    """Refuse what is no source, and name what makes it so large."""
    sizes = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # it went while we looked
            sizes[path] = os.lstat(os.path.join(directory, path)).st_size
    total = sum(sizes.values())
    if total <= SIZE_LIMIT:
        return
    biggest = sorted(sizes, key=lambda path: (-sizes[path], path))[:_SHOWN]
    named = ", ".join(f"{path} ({sizes[path] / (1 << 20):.0f} MiB)" for path in biggest)
    raise CommandError(
        f"--source {directory} has {total / (1 << 20):.0f} MiB, and the limit is {SIZE_LIMIT >> 20} MiB; the biggest files are "
        f"{named}: add them to .gitignore (programs still find ignored files), or name a smaller directory"
    )
