"""What another cluster left in the data directory: set aside, never deleted and never adopted.

A cluster whose database is missing or empty knows no pod and no claim. To the kubelet everything on disk would then be
rubbish of pods that are gone: it would kill programs and delete persistent volumes that only look unowned.
"""

from __future__ import annotations

import time
from pathlib import Path

_DIRECTORIES = ("pods", "logs", "claims", "checkpoints", "deaths")
"""What belongs to the objects of one cluster. Images belong to the machine."""


def set_aside(data_dir: Path, now: float) -> str:
    """Move what an unknown cluster left into one directory; the sentence for whoever starts the cluster, "" without any.

    `now`: seconds since the epoch. Called before anything of the kubelet exists. Raises OSError."""
    found = [name for name in _DIRECTORIES if (data_dir / name).is_dir() and any((data_dir / name).iterdir())]
    if not found:
        return ""
    aside = data_dir / f"previous-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
    aside.mkdir(mode=0o700)
    for name in found:
        (data_dir / name).rename(aside / name)
    return (
        f"cluster.db was missing or empty, so this is a new cluster; {', '.join(found)} of the cluster before it are kept in"
        f" {aside}, and programs of its pods may still run. To have that cluster back: `rowlock down`, put its cluster.db and"
        f" these directories where they were, `rowlock up`"
    )
