"""The files of a backup besides `cluster.db`: their names, and which of them a data directory has.

Files that are replaced atomically are copied as they are. The archive's database is copied in its own transaction, with the compressed
logs that this copy refers to.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

from rowlock.storage.log_format import TranslateErrors
from rowlock.storage.recovery import uri

SMALL_FILES = (
    "ca.crt", "ca.key", "server.crt", "server.key", "service-account.key", "token", "config.json", "accounts.json", "credentials.json",
)  # fmt: skip
"""Certificates, keys, tokens and accounts; those that exist are included."""
ARCHIVE = "archive/archive.db"
_LOGS = "archive/logs"
_AUDIT = re.compile(r"audit\.jsonl(\.[0-9])?")
_LOG = re.compile(r"archive/logs/[A-Za-z0-9][A-Za-z0-9._-]{0,250}")
LEFT_OUT = ("claims", "checkpoints", "logs", "images", "sources", "pods")
"""Directories that a backup leaves out: what pods wrote, or what was copied for them."""


def is_part(name: str) -> bool:
    """Whether a backup may hold a file of this name."""
    return name in (*SMALL_FILES, ARCHIVE) or bool(_AUDIT.fullmatch(name) or _LOG.fullmatch(name))


def find_parts(data_dir: Path, temporary: Path) -> dict[str, Path]:
    """Paths by their names in the backup; `temporary` is a directory for a copy of the archive's database. Raises OSError, Unavailable."""
    names = [*SMALL_FILES, *sorted(path.name for path in data_dir.glob("audit.jsonl*") if _AUDIT.fullmatch(path.name))]
    parts = {name: data_dir / name for name in names if (data_dir / name).is_file()}
    if (data_dir / ARCHIVE).is_file():
        parts[ARCHIVE] = copy = temporary / "archive.db"
        with TranslateErrors(data_dir / ARCHIVE):
            logs = _copy_archive(data_dir / ARCHIVE, copy)
        names = [name for log in logs if is_part(name := f"{_LOGS}/{log}")]
        parts |= {name: data_dir / name for name in names if (data_dir / name).is_file()}
    return parts


def _copy_archive(source: Path, copy: Path) -> list[str]:
    """Copy the archive's database; return the names of the log files that the copy refers to."""
    with contextlib.closing(sqlite3.connect(uri(source, "rw"), uri=True, timeout=30.0)) as archive:
        (version,) = archive.execute("PRAGMA user_version").fetchone()
        archive.execute("VACUUM INTO ?", (str(copy),))
    copy.chmod(0o600)
    if not version:
        return []  # the tables do not exist yet
    with contextlib.closing(sqlite3.connect(uri(copy, "ro"), uri=True)) as archive:
        return [name for (name,) in archive.execute("SELECT DISTINCT file FROM logs WHERE file != ''")]
