"""Detects changes of an interpreter's packages. A parent takes these stamps before it imports anything, and the pod host
checks them before each fork. Standard library only."""

import os
import sys
from collections.abc import Mapping


def stamp_packages() -> dict[str, int]:
    """The directories of this interpreter's packages, each with its modification time in nanoseconds, which changes when a package is
    added or removed; and its `.pth` files, which name other directories (`pip install -e`)."""
    places = [place for place in sys.path if place.endswith("-packages") and os.path.isdir(place)]
    pth_files = [f"{place}/{name}" for place in places for name in os.listdir(place) if name.endswith(".pth")]
    return {path: _modification_time(path) for path in (*places, *pth_files, f"{sys.prefix}/pyvenv.cfg")}


def have_changed(stamps: Mapping[str, int]) -> bool:
    """Whether any path has changed since the stamps were taken."""
    return any(_modification_time(path) != stamp for path, stamp in stamps.items())


def _modification_time(path: str) -> int:
    """The modification time in nanoseconds; 0 = the path does not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
