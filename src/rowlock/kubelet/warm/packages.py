"""When the packages of an interpreter changed last. A parent takes these stamps before it imports anything, the pod host
looks again before each fork. Standard library only."""

import os
import sys
from collections.abc import Mapping


def stamp_packages() -> dict[str, int]:
    """Where this interpreter's packages are installed, each with its time in nanoseconds: a directory's is that of the last
    package that came or went, and its `.pth` files name directories elsewhere (`pip install -e`)."""
    places = [place for place in sys.path if place.endswith("-packages") and os.path.isdir(place)]
    pth_files = [f"{place}/{name}" for place in places for name in os.listdir(place) if name.endswith(".pth")]
    return {path: _modification_time(path) for path in (*places, *pth_files, f"{sys.prefix}/pyvenv.cfg")}


def have_changed(stamps: Mapping[str, int]) -> bool:
    """Since they were taken."""
    return any(_modification_time(path) != stamp for path, stamp in stamps.items())


def _modification_time(path: str) -> int:
    """0 where nothing is."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
