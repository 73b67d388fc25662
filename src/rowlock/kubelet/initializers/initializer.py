"""Stands in for Trainer's images `dataset-initializer` and `model-initializer` where they are this machine's programs.

    STORAGE_URI=… python -m rowlock.kubelet.initializers.initializer dataset|model

It fetches what STORAGE_URI names to /workspace/dataset or /workspace/model, as Trainer's own programs do: `hf://` with
`huggingface_hub`, if that is installed, else from the cache of Hugging Face on this machine. `file:///DIRECTORY` is a directory or a file of
this machine. The last two need no network.
"""

import os
import re
import shutil
import sys
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

WORKSPACE = "/workspace"
_DATA_FILES = ("*.json", "*.jsonl", "*.csv", "*.parquet", "*.arrow")
_MODEL_FILES = ("*.json", "*.safetensors", "*.model", "*.txt")
_UNWANTED = "*.msgpack,*.h5,*.bin,.pt,.pth"
"""Patterns that are left out of a model, unless IGNORE_PATTERNS is set."""
_LOCAL = "without a network, put it on this machine and set storageUri to file:///DIRECTORY"
_REVISION = re.compile(r"[0-9a-f]{40}")


class CannotInitialize(Exception):
    """The initializer failed; carries a sentence for the log."""


def initialize(what: str, uri: str, target: Path) -> str:
    """Fetches `uri` to `target`; returns a sentence that says so. Raises CannotInitialize."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return _copy_local(uri, Path(unquote(parts.path)), target)
    if parts.scheme == "hf":
        return _fetch(what, uri, f"{parts.netloc}{parts.path}".strip("/"), target)
    known = "hf://OWNER/NAME and file:///DIRECTORY"
    raise CannotInitialize(f"STORAGE_URI is {uri!r}, and what stands for Trainer's initializers here knows {known}")


def _copy_local(uri: str, source: Path, target: Path) -> str:
    try:
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / source.name)
    except (OSError, shutil.Error) as error:
        raise CannotInitialize(f"{uri} cannot be copied to {target}: {error}") from None
    return f"copied {source} to {target}"


def _fetch(what: str, uri: str, repository: str, target: Path) -> str:
    """Downloads a repository, or copies it from the cache of this machine where that cannot be done."""
    if repository.count("/") != 1:
        raise CannotInitialize(f"STORAGE_URI is {uri!r}, and a repository is hf://OWNER/NAME")
    unwanted = os.environ.get("IGNORE_PATTERNS", _UNWANTED if what == "model" else "")
    wanted = list(_MODEL_FILES if what == "model" else _DATA_FILES)
    ignored = [pattern.strip() for pattern in unwanted.split(",") if pattern.strip()]
    try:
        _download(what, repository, target, {"allow_patterns": wanted, "ignore_patterns": ignored})
    except CannotInitialize as problem:
        if (found := find_cached(what, repository, os.environ)) is None:
            raise CannotInitialize(f"{uri} {problem}, and it is not in the cache of this machine; {_LOCAL}") from None
        return _copy_cached(found, target, wanted, ignored) + f" ({uri} {problem})"
    return f"downloaded {uri} to {target}"


def _download(what: str, repository: str, target: Path, patterns: dict[str, list[str]]) -> None:
    """Raises CannotInitialize with the end of a sentence about the repository."""
    try:
        import huggingface_hub
    except ImportError:
        raise CannotInitialize(
            "needs huggingface_hub, which the Python of rowlock has not: `pip install huggingface_hub`"
        ) from None
    wishes: dict[str, Any] = {"repo_type": what, "token": os.environ.get("ACCESS_TOKEN") or None, **patterns}
    try:
        huggingface_hub.snapshot_download(repository, local_dir=str(target), **wishes)
    except Exception as error:  # noqa: BLE001 - of any of the libraries below it
        first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        raise CannotInitialize(f"cannot be downloaded: {type(error).__name__}: {first}") from None


def find_cached(what: str, repository: str, env: Mapping[str, str]) -> Path | None:
    """The directory of a repository's main revision in the cache of Hugging Face, which all of its libraries share; None if it has none."""
    home = env.get("HF_HOME") or f"{env.get('XDG_CACHE_HOME') or Path.home() / '.cache'}/huggingface"
    cached = Path(env.get("HF_HUB_CACHE") or f"{home}/hub") / f"{what}s--{repository.replace('/', '--')}"
    try:
        revision = (cached / "refs" / "main").read_text().strip()
    except OSError:
        return None
    snapshot = cached / "snapshots" / revision
    return snapshot if _REVISION.fullmatch(revision) and snapshot.is_dir() else None


def _copy_cached(snapshot: Path, target: Path, wanted: list[str], ignored: list[str]) -> str:
    """The files of a snapshot that a download would bring. They are links to the cache: their contents are copied."""
    count = 0
    for source in sorted(one for one in snapshot.rglob("*") if one.is_file()):
        path = source.relative_to(snapshot)
        if not any(fnmatch(str(path), one) for one in wanted) or any(fnmatch(str(path), one) for one in ignored):
            continue
        _copy_local(str(path), source, (target / path).parent)
        count += 1
    if not count:
        raise CannotInitialize(f"{snapshot} has no file that fits {', '.join(wanted)}")
    return f"copied {count} files of {snapshot}, the cache of this machine, to {target}"


def is_mounted(path: str, mounts: str) -> bool:
    """Whether a volume is mounted there, by the text of /proc/self/mountinfo."""
    return any(line.split()[4] == path for line in mounts.splitlines() if len(line.split()) > 4)


def main(argv: list[str]) -> str:
    """Runs the initializer; returns a sentence that says what was done. Raises CannotInitialize."""
    what, uri = argv[0], os.environ.get("STORAGE_URI", "")
    if not is_mounted(WORKSPACE, Path("/proc/self/mountinfo").read_text()):
        raise CannotInitialize(
            f"no volume is mounted at {WORKSPACE}, where the {what} belongs: nothing was brought there"
        )
    return initialize(what, uri, Path(WORKSPACE) / what)


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]), flush=True)
    except CannotInitialize as refused:
        sys.exit(str(refused))
