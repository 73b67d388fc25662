"""`build` and `image`: handed to the node's own programs, which know what an image is."""

from __future__ import annotations

import os
import sys

from rowlock.cli import client
from rowlock.cli.grammar import Line, Refused
from rowlock.cli.place import data_dir


def _become(module: str, *argv: str) -> int:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", f"rowlock.cluster.node.{module}", *argv])


def build(line: Line) -> int:
    if not line.tag:
        raise Refused("the image needs a name: `rowlock build -t NAME DIR`", 2)
    where = line.word("directory")
    if not os.path.isdir(where):
        raise Refused(f"there is no directory {where}")
    extra = ["--file", line.file] if line.file else []
    for argument in line.build_arg:
        extra += ["--build-arg", argument]
    extra += ["--runtime", line.runtime or _runtime(line)]
    return _become("build", "--data-dir", data_dir(line), "-t", line.tag, *extra, where)


def _runtime(line: Line) -> str:
    """What the server of the data directory was started with: its pods shall find the image."""
    return str((client.state(data_dir(line)) or {}).get("flags", {}).get("runtime") or "auto")


def index(line: Line) -> int:
    return _become("images", "--data-dir", data_dir(line), "list", *(["--json"] if line.json else []))


def add(line: Line) -> int:
    if bool(line.host) == bool(line.dir):
        raise Refused("say what the image is: --host for this machine's programs, or --dir DIR", 2)
    if line.dir and not os.path.isdir(line.dir):
        raise Refused(f"there is no directory {line.dir}")
    how = ["--host"] if line.host else ["--dir", os.path.abspath(line.dir)]
    return _become("images", "--data-dir", data_dir(line), "add", line.word("name"), *how)


def remove(line: Line) -> int:
    return _become("images", "--data-dir", data_dir(line), "remove", line.word("name"))
