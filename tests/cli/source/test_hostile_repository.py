"""A repository that was unpacked from somewhere names programs in its settings: a run records it and starts none of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.source.test_source import git

from rowlock.cli.grammar import CommandError
from rowlock.cli.source.repository import find_repository
from rowlock.cli.source.snapshot import SourceStore


def name_monitor(directory: Path, program: str) -> None:
    git(directory, "config", "core.fsmonitor", program)


def name_filter(directory: Path, program: str, name: str) -> None:
    (directory / ".gitattributes").write_text(f"*.py filter={name}\n")
    for key in ("clean", "process"):
        git(directory, "config", f"filter.{name}.{key}", program)
    git(directory, "config", f"filter.{name}.required", "true")


def name_submodule(directory: Path, program: str) -> None:
    inner = directory / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "a.py").write_text("x = 1\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "first")
    git(directory, "add", "inner")
    git(directory, "commit", "-qm", "second")
    name_filter(inner, program, "x")
    git(inner, "config", "core.fsmonitor", program)
    os.utime(inner / "a.py", (1, 1))


def name_fetch(directory: Path, program: str) -> None:
    """A partial clone whose HEAD leads to a tree that it lacks."""
    text = f"tree {'1' * 40}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n"
    words = ["git", "-C", str(directory), "hash-object", "-t", "commit", "-w", "--literally", "--stdin"]
    commit = subprocess.run(words, input=text, capture_output=True, text=True, check=True).stdout.strip()
    head = git(directory, "symbolic-ref", "HEAD")
    (directory / ".git" / head).write_text(f"{commit}\n")
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::{program} x"),
        ("protocol.ext.allow", "always"),
    ):
        git(directory, "config", name, value)


def name_hooks(directory: Path, program: str) -> None:
    hooks = directory / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "reference-transaction", "post-checkout"):
        (hooks / hook).symlink_to(program)
    git(directory, "config", "core.hooksPath", str(hooks))


TRAPS: dict[str, Callable[[Path, str], None]] = {
    "a monitor": name_monitor,
    "a filter": lambda directory, program: name_filter(directory, program, "x"),
    "a filter with an odd name": lambda directory, program: name_filter(directory, program, "a=b.c"),
    "a submodule's": name_submodule,
    "a way to fetch": name_fetch,
    "hooks": name_hooks,
}


@pytest.mark.parametrize("trap", TRAPS)
def test_no_program_of_its_settings_is_run(tmp_path: Path, trap: str) -> None:
    program, mark, directory = tmp_path / "program", tmp_path / "it-ran", tmp_path / "project"
    program.write_text(f"#!/bin/sh\necho ran >> {mark}\ncat\n")
    program.chmod(0o755)
    directory.mkdir()
    (directory / "train.py").write_text("x = 1\n")
    git(directory, "init", "-q")
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", "first")
    TRAPS[trap](directory, str(program))
    mark.unlink(missing_ok=True)  # git itself may have run it, while the trap was set
    os.utime(directory / "train.py", (1, 1))  # so that git looks at its content

    assert find_repository(str(directory)) is not None
    try:
        snapshot = SourceStore(str(tmp_path / "cluster")).take(str(directory))
        assert snapshot.files >= 1
    except CommandError as error:
        assert "git cannot pack" in str(error)
    assert not mark.exists(), f"{trap} was run"


def test_it_does_not_lead_elsewhere(tmp_path: Path) -> None:
    secret, directory = tmp_path / "home", tmp_path / "project"
    secret.mkdir()
    (secret / "key").write_text("secret")
    directory.mkdir()
    git(directory, "init", "-q")
    (directory / "train.py").write_text("x = 1\n")
    git(directory, "config", "core.worktree", str(secret))
    assert find_repository(str(directory)) is None
