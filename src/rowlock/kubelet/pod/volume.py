"""One resolved volume of a pod: its source and its present contents."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Files = Mapping[str, tuple[bytes, int]]
"""Path inside the volume → (content, mode)."""


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume. `kind`: empty, memory (both with an optional `limit` in bytes), files, host (`path`, `check` = its
    type), nfs (`path` = the export) or claim (`path` = the directory's name)."""

    name: str
    kind: str
    files: Files = field(default_factory=dict)
    path: str = ""
    check: str = ""
    limit: int | None = None
    read_only: bool = False
