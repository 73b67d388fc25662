"""Reads the user's repository with git: its top directory, its commit, and the files that differ from the commit.

git must not run other programs here: the settings of an untrusted, unpacked repository can name programs (monitors, filters,
remote helpers).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NamedTuple

from rowlock.cli.grammar import CommandError

GIT_TIMEOUT = 120.0
"""Seconds that one call of git may take."""
_NO_NETWORK = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
"""git must not fetch missing objects of a partial clone, because the repository names the program that fetches."""


class Repository(NamedTuple):
    """The top directory of a git working tree, and its commit ("" before the first)."""

    directory: str
    commit: str


def find_repository(directory: str) -> Repository | None:
    """The git repository that contains the directory; None outside git, or when git is not installed."""
    if shutil.which("git") is None:
        return None
    top = top_directory(directory)
    if not top:
        return None
    return Repository(top, run_git("-C", directory, "rev-parse", "--verify", "HEAD", check=False).strip())


def top_directory(directory: str) -> str:
    """The top of the working tree that contains the directory; "" when there is none. Settings of the repository that name
    another tree are ignored."""
    top = run_git("-C", directory, "rev-parse", "--show-toplevel", check=False).removesuffix("\n")
    here = os.path.realpath(directory)
    return top if top and os.path.commonpath([os.path.realpath(top), here]) == os.path.realpath(top) else ""


def list_files(directory: str) -> list[str] | None:
    """The files below a directory that git knows or does not ignore, relative to it; None outside git."""
    if shutil.which("git") is None or not top_directory(directory):
        return None
    asked = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [path for path in run_git("-C", directory, "-c", "core.fsmonitor=false", *asked).split("\0") if path]


def read_status(directory: str, timeout: float) -> str:
    """One line for each file that differs from the commit. git runs no program that the repository's settings name;
    programs in the user's own settings (git-lfs) do run."""
    quiet = {"core.fsmonitor": "false"}
    known = run_git("-C", directory, "config", "--show-scope", "--null", "--name-only", "--list", check=False).split(
        "\0"
    )
    for scope, name in zip(known[::2], known[1::2], strict=False):
        if scope in ("local", "worktree") and name.startswith("filter.") and name.count(".") > 1:
            quiet |= {f"{name.rpartition('.')[0]}.{key}": "" for key in ("clean", "process")}
            quiet |= {f"{name.rpartition('.')[0]}.required": "false"}
    environ = {"GIT_CONFIG_COUNT": str(len(quiet))}  # not with -c, because a name may contain "="
    for number, (name, value) in enumerate(quiet.items()):
        environ |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    asked = ("status", "--porcelain", "-uall", "--ignore-submodules=dirty", "--", ".")
    return run_git("-C", directory, *asked, environ=environ, timeout=timeout)


def run_git(
    *argv: str,
    check: bool = True,
    environ: dict[str, str] | None = None,
    text: str | None = None,
    cwd: str | None = None,
    timeout: float = GIT_TIMEOUT,
) -> str:
    """Run git and return its output, "" when it fails and `check` is false. File names that are not UTF-8 survive. GIT_* variables
    of the shell are removed, because they may belong to another repository. Raises CommandError."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *argv],
            env=clean | {"GIT_OPTIONAL_LOCKS": "0"} | _NO_NETWORK | (environ or {}),
            input=os.fsencode(text) if text is not None else None,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            timeout=timeout,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"git had not ended after {timeout:g} s; name a smaller directory") from None
    if check and done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise CommandError(f"git cannot pack the directory: {said[-1]}")
    return os.fsdecode(done.stdout) if not done.returncode else ""
