"""Checkpoints as files: written to a temporary directory, published atomically, verified before loading, the oldest removed.

    ROOT/step-000000120/manifest.json    step, number of ranks, size and CRC-32 of every file
    ROOT/step-000000120/rank-0.pt, …     what each rank wrote
    ROOT/.step-000000120.partial/        a checkpoint being written; `rank-0.pt.done` marks a complete file

Ranks need no collective to finish a checkpoint: each writes a file when it is done, and rank 0 renames the directory when all are. So
threads can write a checkpoint while training continues.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
COMMIT_TIMEOUT = 600.0
"""Seconds that rank 0 waits for the files of the others."""
_POLL_INTERVAL = 0.02
_NAME = re.compile(r"step-([0-9]{9,})")
_CHUNK = 1 << 20


class CheckpointError(Exception):
    """A checkpoint cannot be written or read; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A complete checkpoint; `world_size`: the number of ranks that saved it."""

    path: Path
    step: int
    world_size: int


class SnapshotFiles:
    """The checkpoints of one directory, as one of `world_size` ranks sees them."""

    def __init__(self, root: Path, rank: int, world_size: int, *, keep: int) -> None:
        self.root, self._rank, self._world_size, self._keep = root, rank, world_size, keep

    # ------------------------------------------------------------ writing

    def partial(self, step: int) -> Path:
        """The directory of a checkpoint that is being written; created if needed."""
        path = self.root / f".{_directory_name(step)}.partial"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, step: int, name: str, save: Callable[[Path], object]) -> None:
        """Write one file of this rank atomically; `save` writes it to a given path. Raises CheckpointError."""
        try:
            target = self.partial(step) / name
            scratch = target.with_name(f"{name}.tmp")
            save(scratch)
            entry = _measure(scratch, sync=True)
            os.replace(scratch, target)
            _write_json(target.with_name(f"{name}.done"), entry)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written to {self.root} ({error.strerror or error}):"
                " the ones before it are whole"
            ) from error

    def commit(self, step: int, *, timeout: float = COMMIT_TIMEOUT) -> None:
        """On rank 0: wait until every rank has written, publish the checkpoint, and remove the oldest. Raises
        CheckpointError, also after `timeout` seconds."""
        partial, deadline = self.partial(step), time.monotonic() + timeout
        wanted = [f"{rank_file(rank)}.done" for rank in range(self._world_size)]
        while missing := [name for name in wanted if not (partial / name).exists()]:
            if time.monotonic() > deadline:
                raise CheckpointError(
                    f"the checkpoint of step {step} is not complete: {len(missing)} of {self._world_size} ranks have not"
                    f" written their file in {timeout:g} s; ranks must share {self.root}"
                )
            time.sleep(_POLL_INTERVAL)
        try:
            self._publish(partial, step)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint of step {step} could not be finished: {error.strerror or error}"
            ) from error
        self._prune()

    def _publish(self, partial: Path, step: int) -> None:
        files: dict[str, Any] = {}
        for path in sorted(p for p in partial.rglob("*") if p.is_file()):
            name = path.relative_to(partial).as_posix()
            if name.endswith(".done"):
                continue
            done = path.with_name(f"{path.name}.done")
            files[name] = json.loads(done.read_text()) if done.exists() else _measure(path, sync=True)
        _write_json(partial / MANIFEST, {"format": FORMAT, "step": step, "worldSize": self._world_size, "files": files})
        for done in partial.rglob("*.done"):
            done.unlink()
        target = self.root / _directory_name(step)
        if target.exists():
            shutil.rmtree(target)  # left by an attempt; this one resumed from an older checkpoint
        os.rename(partial, target)
        _sync_directory(self.root)

    def _prune(self) -> None:
        for path in self._directories()[self._keep :]:
            shutil.rmtree(path, ignore_errors=True)

    def discard_partial(self) -> None:
        """On rank 0, before any rank writes: remove unfinished checkpoints of earlier attempts."""
        for path in self.root.glob(".step-*.partial"):
            shutil.rmtree(path, ignore_errors=True)

    # ------------------------------------------------------------ reading

    def newest(self, report: Callable[[str], None]) -> StoredCheckpoint | None:
        """The newest complete checkpoint; `report` is called with the reason for each newer one that is not complete."""
        for path in self._directories():
            reason = check(path)
            if not reason:
                manifest = json.loads((path / MANIFEST).read_text())
                return StoredCheckpoint(path, int(manifest["step"]), int(manifest["worldSize"]))
            report(f"{path} is not whole ({reason}): an older checkpoint is looked for")
        return None

    def _directories(self) -> list[Path]:
        """The directories with the name of a published checkpoint, the newest first."""
        if not self.root.is_dir():
            return []
        found = [(int(match[1]), path) for path in self.root.iterdir() if (match := _NAME.fullmatch(path.name))]
        return [path for _, path in sorted(found, reverse=True)]


def rank_file(rank: int) -> str:
    """The name of a rank's file."""
    return f"rank-{rank}.pt"


def check(path: Path) -> str:
    """Why a checkpoint is incomplete or damaged; "" if it is valid."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        if manifest["format"] != FORMAT:
            return f"its format is {manifest['format']}, and this version reads {FORMAT}"
        for name, entry in manifest["files"].items():
            if _measure(path / name) != entry:
                return f"{name} is not what was written"
    except OSError as error:
        return f"{Path(error.filename or path).name}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is damaged"
    return ""


def _directory_name(step: int) -> str:
    return f"step-{step:09d}"


def _measure(path: Path, *, sync: bool = False) -> dict[str, int]:
    """Size in bytes and CRC-32 of a file; `sync`: also fsync it."""
    size, crc = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
        if sync:
            os.fsync(file.fileno())
    return {"bytes": size, "crc32": crc}


def _write_json(path: Path, value: Any) -> None:
    scratch = path.with_name(f"{path.name}.tmp")
    with scratch.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
