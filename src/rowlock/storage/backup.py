"""`rowlock backup` and `rowlock restore`: one file with a cluster's whole state, taken while its server runs.

The file is a tar: `manifest.json` first (what is in it, with SHA-256 sums), then `cluster.db` as of one revision (SQLite's
`VACUUM INTO`: a read transaction, so writers go on; without what was deleted), the certificates, keys, accounts and credentials,
the audit log and the archive with its logs. Not included: what pods wrote (claims, checkpoints, logs that are not
archived yet) and images. These can be large; copy their directories to back them up.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rowlock import __version__
from rowlock.errors import ApiError, BadRequest, Unavailable
from rowlock.storage.log_format import COLUMNS, TranslateErrors, read_rows, read_version
from rowlock.storage.recovery import uri

_DATABASE = "cluster.db"
_MANIFEST = "manifest.json"
_COUNTED = ("pods", "configmaps", "secrets", "persistentvolumeclaims")
"""Resources that a summary counts one by one, besides jobs."""
_FORMAT = 2
"""Format of the backup file; the database in it has its own. Format 1 had no archive, accounts, credentials or audit log."""
_MOST_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True)
class Manifest:
    """`manifest.json`: what a backup holds. `objects` counts live objects by resource; `files` are SHA-256 sums in hex."""

    format: int
    version: str
    made: str
    revision: int
    objects: dict[str, int]
    files: dict[str, str]


def create_backup(data_dir: Path, file: Path, now: datetime) -> Manifest:
    """Write `file`, whole or not at all. Raises ApiError with one sentence; an existing file is never replaced."""
    if not (data_dir / _DATABASE).is_file():
        raise BadRequest(
            f"{data_dir} holds no cluster ({_DATABASE} is missing): name its data directory with --data-dir"
        )
    if file.exists():
        raise BadRequest(f"{file} is there already: choose another name for the backup, or remove it first")
    file = file.absolute()
    if not file.parent.is_dir():
        raise BadRequest(
            f"{file} cannot be written ({file.parent} is no directory): choose another place for the backup"
        )
    with _translate_os_errors(file), tempfile.TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as temporary:
        copy = Path(temporary, _DATABASE)
        _copy_database(data_dir / _DATABASE, copy)
        revision, objects = verify_database(copy)
        parts = {_DATABASE: copy, **find_parts(data_dir, Path(temporary))}
        sums = {name: _sum_file(path) for name, path in parts.items()}
        manifest = Manifest(_FORMAT, __version__, now.isoformat(timespec="seconds"), revision, objects, sums)
        whole = Path(temporary, "backup.tar")
        _write_tar(whole, manifest, parts)
        os.link(whole, file)  # unlike a rename it replaces nothing
        _sync_directory(file.parent)
    return manifest


def restore_backup(file: Path, data_dir: Path) -> Manifest:
    """Make `data_dir` from a backup: it appears whole or not at all. Raises ApiError with one sentence."""
    data_dir = data_dir.absolute()
    _check_readable(file)
    with _translate_os_errors(data_dir):
        if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
            raise BadRequest(
                f"{data_dir} is not empty, and a restore replaces nothing: name a new or empty directory with --data-dir"
            )
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{data_dir.name}.restore-", dir=data_dir.parent))
    try:
        with _translate_os_errors(data_dir):
            manifest = _unpack(file, staging)
            verify_database(staging / _DATABASE)
            _sync_directory(staging)
            staging.rename(data_dir)
            _sync_directory(data_dir.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _check_readable(file: Path) -> None:
    """Raise BadRequest when the backup cannot be opened, before anything is created on disk."""
    try:
        file.open("rb").close()
    except OSError as error:
        raise BadRequest(
            f"the backup {file} cannot be read ({error.strerror or error}): name a file that `rowlock backup` wrote"
        ) from error


def verify_database(path: Path) -> tuple[int, dict[str, int]]:
    """Read every row: the last revision, and the number of live objects by resource. Raises Unavailable for damage."""
    live: dict[tuple[str, str, str], None] = {}
    with TranslateErrors(path), contextlib.closing(sqlite3.connect(uri(path, "ro"), uri=True)) as log:
        if not read_version(log, path):
            raise Unavailable(f"{path} is no database of rowlock: choose another backup")
        revision = int(log.execute("SELECT compacted FROM mark").fetchone()[0])
        for row in read_rows(log, f"SELECT {COLUMNS} FROM log ORDER BY revision", path):
            revision = max(revision, row.revision)
            live[row.kind, row.namespace, row.name] = None
            if row.verb == "Deleted":
                del live[row.kind, row.namespace, row.name]
    return revision, dict(sorted(Counter(kind for kind, _, _ in live).items()))


def _copy_database(source: Path, copy: Path) -> None:
    with (
        TranslateErrors(source),
        contextlib.closing(sqlite3.connect(uri(source, "rw"), uri=True)) as log,
    ):
        if read_version(log, source) < 2:
            raise BadRequest(
                f"{source} was written by an older rowlock: start this version once (`rowlock up`), then make the backup"
            )
        log.execute("VACUUM INTO ?", (str(copy),))
    copy.chmod(0o600)


def _write_tar(path: Path, manifest: Manifest, parts: dict[str, Path]) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
        with tarfile.open(fileobj=output, mode="w") as tar:
            text = json.dumps(asdict(manifest), indent=2).encode()
            _add_member(tar, _MANIFEST, len(text), io.BytesIO(text))
            for name, part in parts.items():
                with part.open("rb") as content:
                    _add_member(tar, name, os.fstat(content.fileno()).st_size, content)
        output.flush()
        os.fsync(output.fileno())


def _add_member(tar: tarfile.TarFile, name: str, size: int, content: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    tar.addfile(member, content)


def _unpack(file: Path, directory: Path) -> Manifest:
    """Write the files that the manifest names, and no others, and verify their checksums. Raises BadRequest for a damaged backup."""
    try:
        with tarfile.open(file, "r:") as tar:
            manifest = _read_manifest(tar, file)
            for name in manifest.files:
                member = tar.getmember(name)
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise _not_whole(file, f"{name} is no file")
                target = directory / name
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
                    shutil.copyfileobj(content, output, 1 << 20)
                    output.flush()
                    os.fsync(output.fileno())
                if _sum_file(target) != manifest.files[name]:
                    raise _not_whole(file, f"the checksum of {name} is wrong")
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise _not_whole(file, str(error).strip("'") or "it ends too early") from error
    return manifest


def _read_manifest(tar: tarfile.TarFile, file: Path) -> Manifest:
    member = tar.next()
    content = tar.extractfile(member) if member and member.name == _MANIFEST and member.isreg() else None
    if member is None or content is None or member.size > _MOST_MANIFEST_BYTES:
        raise _not_whole(file, "it does not begin with a manifest")
    try:
        manifest = Manifest(**json.loads(content.read()))
        if manifest.format > _FORMAT:
            raise BadRequest(
                f"{file} was made by a newer rowlock ({manifest.version}, with backups of format {manifest.format}; this one is {__version__}"
                f" and knows format {_FORMAT}): restore with that version"
            )
        if _DATABASE not in manifest.files or not all(name == _DATABASE or is_part(name) for name in manifest.files):
            raise _not_whole(file, "its manifest names files that no backup holds, or lacks the database")
    except (ValueError, TypeError, RecursionError) as error:
        raise _not_whole(file, f"its manifest cannot be read: {error}") from error
    return manifest


def _not_whole(file: Path, why: str) -> BadRequest:
    return BadRequest(f"{file} is no whole backup of rowlock ({why}): nothing was restored; take another backup file")


def _sum_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _translate_os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise BadRequest(
            f"{where}: {error.strerror or error}: nothing was left behind; choose another place"
        ) from error


# ------------------------------------------------------------ the program


def describe_backup(file: Path, manifest: Manifest, data_dir: Path) -> str:
    """The text that `rowlock backup` prints: what the file contains, and what it leaves out."""
    left_out = _left_out(data_dir)
    lines = [
        f"{file}: {sum(manifest.objects.values())} objects as of revision {manifest.revision} ({_count(manifest)}),"
        f" and {', '.join(_name_parts(manifest))}",
    ]
    if left_out:
        lines.append(f"Not in it: {', '.join(left_out)}; copy what you need of these")
    lines.append("Keep it as you keep a password: it contains the cluster's Secrets and keys")
    return "\n".join(lines)


def _left_out(data_dir: Path) -> list[str]:
    """Paths of the directories with files that a backup leaves out."""
    return [
        str(data_dir / name) for name in LEFT_OUT if (data_dir / name).is_dir() and any((data_dir / name).iterdir())
    ]


def _facts(data_dir: str, file: str, manifest: Manifest) -> dict[str, Any]:
    """What `--json` prints of a backup, and of a restored one."""
    return {
        "file": file,
        "dataDirectory": data_dir,
        "made": manifest.made,
        "revision": manifest.revision,
        "objects": manifest.objects,
        "files": sorted(manifest.files),
    }


def _name_parts(manifest: Manifest) -> list[str]:
    """Names of the files besides the database; the archive and its logs are one entry."""
    names = [name for name in manifest.files if name != _DATABASE and "/" not in name]
    logs = sum(name.startswith("archive/logs/") for name in manifest.files)
    has_archive = any("/" in name for name in manifest.files)
    return [*names, *([f"the archive (history{f', {logs} large logs' if logs else ''})"] if has_archive else [])]


def _count(manifest: Manifest) -> str:
    """Counts as text: jobs and the resources in `_COUNTED` one by one, then the total of all others."""
    jobs = sum(count for resource, count in manifest.objects.items() if resource.partition(".")[0].endswith("jobs"))
    counts = {"jobs": jobs, **{resource: manifest.objects.get(resource, 0) for resource in _COUNTED}}
    listed = [f"{count} {name if count != 1 else name.removesuffix('s')}" for name, count in counts.items() if count]
    return ", ".join([*listed, f"{sum(manifest.objects.values()) - sum(counts.values())} others"])


def print_backup(data_dir: str, file: str, *, as_json: bool = False) -> int:
    """`rowlock backup`. Exit code 0, or 1 with one sentence."""
    try:
        manifest = create_backup(Path(data_dir), Path(file), datetime.now(UTC))
        if as_json:
            print(json.dumps({**_facts(data_dir, file, manifest), "leftOut": _left_out(Path(data_dir))}, indent=2))
        else:
            print(describe_backup(Path(file), manifest, Path(data_dir)))
    except ApiError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    return 0


def print_restore(data_dir: str, file: str, *, as_json: bool = False) -> int:
    """`rowlock restore`. Exit code 0, or 1 with one sentence."""
    try:
        manifest = restore_backup(Path(file), Path(data_dir))
    except ApiError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps(_facts(data_dir, file, manifest), indent=2))
        return 0
    print(
        f"{data_dir} holds the cluster of {manifest.made} again: {sum(manifest.objects.values())} objects"
        f" ({_count(manifest)}). Pods that ran then are started anew. Start it: `rowlock up -d --data-dir {data_dir}`"
    )
    return 0


# ---------------------------------------------------------------- the files of a backup besides cluster.db
# The server works meanwhile: what it replaces or appends to is copied first, so that the sums in the manifest are those of what the file
# holds. The archive's database is copied in its own transaction; the logs that it names are complete.

SMALL_FILES = (
    "ca.crt", "ca.key", "server.crt", "server.key", "service-account.key", "sweep.key", "token", "config.json", "accounts.json", "credentials.json",
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
    """Paths by their names in the backup; `temporary` is a directory for copies. Raises OSError, Unavailable."""
    names = [*SMALL_FILES, *sorted(path.name for path in data_dir.glob("audit.jsonl*") if _AUDIT.fullmatch(path.name))]
    parts = _copy_files(data_dir, names, temporary)
    if (data_dir / ARCHIVE).is_file():
        parts[ARCHIVE] = copy = temporary / "archive.db"
        with TranslateErrors(data_dir / ARCHIVE):
            logs = _copy_archive(data_dir / ARCHIVE, copy)
        names = [name for log in logs if is_part(name := f"{_LOGS}/{log}")]
        parts |= {name: data_dir / name for name in names if (data_dir / name).is_file()}
    return parts


def _copy_files(data_dir: Path, names: list[str], temporary: Path) -> dict[str, Path]:
    """Copies of those files that exist, each of one moment. All are opened first: the audit log may be rotated meanwhile."""
    parts = dict[str, Path]()
    with contextlib.ExitStack() as opened:
        files, seen = dict[str, Any](), set[int]()
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                if (data_dir / name).is_file():
                    files[name] = opened.enter_context((data_dir / name).open("rb"))
        for name, file in files.items():
            status = os.fstat(file.fileno())
            if status.st_ino in seen:  # rotated between two opens: it has both names
                continue
            seen.add(status.st_ino)
            parts[name] = temporary / name
            content = file.read(status.st_size)
            if _AUDIT.fullmatch(name):  # the last line may be half written
                content = content[: content.rfind(b"\n") + 1] or content
            with os.fdopen(os.open(parts[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
                copy.write(content)
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
