"""The layers of built images: a directory each, `images/.layers/<key>/`, which is never changed.

The key is a digest of everything that a step depends on, so a step that was done before is not done again, in whichever
image it occurs. A layer has overlayfs' format: what the step wrote, and whiteouts for what it deleted.
"""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from rowlock.kubelet.files import beneath, untrusted
from rowlock.kubelet.shim.fact_files import write_fact

UNUSED_SECONDS = 7 * 86400.0
"""Seconds that an unused layer is kept for the next build."""
_KEY_LENGTH = 20
_NEWEST_SUFFIX = ".newest"
_USE_FILE = "layers.json"


class LayerStore:
    """The directory of all layers."""

    def __init__(self, images: Path) -> None:
        self.directory = images / ".layers"

    def path(self, key: str) -> Path:
        return self.directory / key

    def has(self, key: str) -> bool:
        """Whether the layer exists; marks it as used now."""
        try:
            os.utime(self.path(key))
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def new(self, key: str) -> Iterator[Path]:
        """An empty directory with `layer` in it and room for `scratch`. If the block succeeds, `layer` becomes the layer."""
        self.directory.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".new-", dir=self.directory))
        place.chmod(0o755)
        try:
            (place / "layer").mkdir(mode=0o755)
            yield place
            try:
                (place / "layer").rename(self.path(key))
            except OSError:
                if not self.path(key).is_dir():  # else another build has made it meanwhile
                    raise
        finally:
            beneath.remove_path(str(place))

    def rename_by_content(self, key: str, wanted: str) -> str:
        """Renames a layer that was made without consulting the store to a key of its contents, for steps whose outcome cannot be known
        beforehand; returns that key. An equal outcome is the same layer, so what was built on it stays cached."""
        known = layer_key(wanted, _tree_digest(self.path(key)))
        try:
            self.path(key).rename(self.path(known))
        except OSError:  # it exists already
            if not self.has(known):
                raise
            beneath.remove_path(str(self.path(key)))
        return known

    def newest(self, key: str) -> str:
        """The key of the layer that replaced this one when it was last rebuilt; else `key`. Marks it as used now."""
        path = str(self.directory / f"{key}{_NEWEST_SUFFIX}")
        try:
            os.utime(path)
        except FileNotFoundError:
            return key
        return str((untrusted.read_object(path) or {}).get("key") or key)

    def note_newest(self, key: str, made: str) -> None:
        """Makes the layer `made` the one that the next build finds under `key`; images keep the old one."""
        write_fact(str(self.directory / f"{key}{_NEWEST_SUFFIX}"), {"key": made})

    def prune(self, used: Collection[str], now: float | None = None) -> None:
        """Removes layers that no image has (`used`: paths of layers) and that were not used for UNUSED_SECONDS."""
        now = time.time() if now is None else now
        for entry in list(os.scandir(self.directory)) if self.directory.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another build has removed it meanwhile
                if entry.path not in used and now - entry.stat().st_mtime > UNUSED_SECONDS:
                    beneath.remove_path(entry.path)


def _tree_digest(layer: Path) -> str:
    """A digest of names, types, modes, owners and contents; not of times, which each download sets anew."""
    digest = hashlib.sha256()
    for directory, names, files in os.walk(layer):
        names.sort()
        for name in sorted([*names, *files]):
            path = os.path.join(directory, name)
            found = os.lstat(path)
            fact = [os.path.relpath(path, layer), found.st_mode, found.st_uid, found.st_gid, found.st_rdev]
            if stat.S_ISLNK(found.st_mode):
                fact.append(os.readlink(path))
            elif stat.S_ISREG(found.st_mode):
                with open(path, "rb") as file:
                    fact.append(hashlib.file_digest(file, "sha256").hexdigest())
            digest.update(json.dumps(fact).encode() + b"\n")
    return digest.hexdigest()


def layer_key(*facts: Any) -> str:
    """The digest of everything that a step depends on: JSON values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:_KEY_LENGTH]


def note_use(container: Path, layers: Sequence[str]) -> None:
    """Records in a container's directory the layers of its root file system. They are kept as long as the directory."""
    with contextlib.suppress(OSError):  # a full disk, say, must not keep it from starting
        container.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_fact(str(container / _USE_FILE), {"layers": list(layers)})


def used_layers(pods: Path) -> set[str]:
    """The layers of all containers below the directory of all pods: their image may have been rebuilt since. A program may write
    anything there; at worst a layer is kept."""
    used = set[str]()
    for path in pods.glob(f"*/*/{_USE_FILE}"):
        layers = (untrusted.read_object(str(path)) or {}).get("layers")
        used |= {layer for layer in layers if isinstance(layer, str)} if isinstance(layers, list) else set()
    return used
