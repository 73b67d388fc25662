"""Objects by name, in a bucket or a directory that several servers share: what `rowlock up --archive URL` names.

`open_bucket` takes s3://BUCKET/PREFIX (and other schemes that fsspec supports) and file:///DIRECTORY. Writes are atomic: lists and reads
show an object completely or not at all, even if a writer dies. Every method blocks on the storage, and raises OSError with a sentence.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from rowlock.archive.storage_refusals import Refusal, RefusalNotes, refusal_in

CHUNK = 1 << 20
"""Bytes of a long object that are read at once."""
FOLDERS = ("writes", "logs", "probes")
_CONNECT_S, _READ_S, _TRIES = 5, 15, 3
"""Timeouts in seconds for connecting and for one answer; and the number of attempts."""
ANSWER_S = 20.0
"""Seconds for one operation including its retries."""
_BYTES_PER_SECOND = 100_000
"""The slowest acceptable transfer: an operation gets one more second for each so many bytes."""
_LONGEST_READ = 4 << 20
"""Bytes for which the time limit of reading a whole object (a segment) is computed."""
_MOST_REMOVED = 500
"""Objects that are removed with one request: S3 allows a thousand."""


class UnusableBucket(Exception):
    """A storage that cannot be used; the message says why and what to do."""


class StorageFailed(OSError):
    """An operation of the storage failed."""


class StorageRefused(StorageFailed):
    """The storage refused an operation; the message says why and what to do."""


class MissingObject(StorageFailed, FileNotFoundError):
    """The object is not in the storage (as opposed to a file missing on this machine's own disk)."""


class Bucket(Protocol):
    """Objects below a prefix; their names have no leading slash."""

    url: str

    def names(self, folder: str) -> dict[str, int]:
        """The objects whose names begin with `folder/`, with their sizes in bytes, unordered."""

    def read(self, name: str) -> bytes:
        """The whole object. Raises MissingObject."""

    def read_part(self, name: str, start: int, end: int) -> bytes:
        """The object's bytes from `start` up to `end` (exclusive), fewer at its end. Raises MissingObject."""

    def write(self, name: str, content: bytes) -> None:
        """Create or replace the object."""

    def upload(self, name: str, path: Path) -> None:
        """Create or replace the object with the content of a file."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; missing ones are ignored."""


@dataclass(frozen=True, slots=True)
class BucketChunks:
    """The content of an object in chunks; can be iterated more than once. Empty when the object is gone."""

    bucket: Bucket
    name: str

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        while True:
            try:
                chunk = self.bucket.read_part(self.name, start, start + CHUNK)
            except MissingObject:
                return
            yield chunk
            start += len(chunk)
            if len(chunk) < CHUNK:
                return


def open_bucket(url: str, environment: Mapping[str, str] = os.environ) -> Bucket:
    """The storage of this URL, after a test write and read. Raises UnusableBucket."""
    parts = urlsplit(url)
    if parts.scheme == "file" or (not parts.scheme and url.startswith("/")):
        if parts.netloc:
            raise UnusableBucket(f"--archive {url} names a host: a directory is named file:///DIRECTORY")
        if not Path(parts.path).is_dir():
            raise UnusableBucket(
                f"--archive {url}: {parts.path} is no directory here: mount it in every server, and make it"
            )
        bucket: Bucket = DirectoryBucket(Path(parts.path))
    elif set(url) & set("*?["):
        raise UnusableBucket(
            f"--archive {url} cannot be used: a bucket and its prefix have none of the characters * ? [ here"
        )
    elif not parts.scheme or not parts.netloc:
        raise UnusableBucket(
            f"--archive takes s3://BUCKET/PREFIX or file:///DIRECTORY (a directory that all servers have), not {url!r}"
        )
    else:
        bucket = _open_remote(url, parts.scheme, environment)
    try:
        if isinstance(bucket, DirectoryBucket):
            bucket.make_folders()
        name = f"probes/{secrets.token_hex(8)}"
        bucket.write(name, b"rowlock")
        seen = name in bucket.names("probes") and bucket.read(name) == b"rowlock"
        bucket.remove([name])
    except StorageRefused as error:
        raise UnusableBucket(f"the archive {url} cannot be used: {error}") from error
    except OSError as error:
        raise UnusableBucket(
            f"the archive {url} cannot be used: {error}; it must be there, and these credentials must read, write, list and delete in it"
        ) from error
    if not seen:
        raise UnusableBucket(
            f"the archive {url} does not show what was written to it a moment ago: use another storage"
        )
    return bucket


def _open_remote(url: str, scheme: str, environment: Mapping[str, str]) -> Bucket:
    try:
        import fsspec  # late: few servers have such an archive
    except ImportError:
        raise UnusableBucket(_install_hint(url, scheme)) from None
    notes = RefusalNotes()
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme == "s3":
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        timeouts = {"connect_timeout": _CONNECT_S, "read_timeout": _READ_S, "retries": {"max_attempts": _TRIES}}
        options |= {"endpoint_url": endpoint, "config_kwargs": timeouts}
    try:
        if scheme == "s3":
            options["session"] = _session_with(notes)
        system, path = fsspec.url_to_fs(url, **options)
    except ImportError:
        raise UnusableBucket(_install_hint(url, scheme)) from None
    except ValueError as error:
        raise UnusableBucket(
            f"--archive {url} cannot be used: {error}; s3://BUCKET/PREFIX and file:///DIRECTORY can"
        ) from None
    return RemoteBucket(url, system, str(path).rstrip("/"), notes)


def _session_with(notes: RefusalNotes) -> Any:
    """The session that s3fs would create, with `notes` registered for every answer. Raises ImportError."""
    from aiobotocore.session import AioSession  # late, as s3fs is, which brings it

    session = AioSession()
    session.register("needs-retry.s3", notes.note)
    return session


def _install_hint(url: str, scheme: str) -> str:
    package = "rowlock[s3]" if scheme == "s3" else f"fsspec's package for {scheme}"
    return f"--archive {url} needs {package}: `pip install 'rowlock[s3]'` brings what s3:// needs"


class RemoteBucket:
    """Objects of a storage that fsspec knows."""

    def __init__(self, url: str, system: Any, root: str, notes: RefusalNotes) -> None:
        self.url, self._system, self._root, self._notes = url, system, root, notes

    def names(self, folder: str) -> dict[str, int]:
        try:
            found = self._ask("find", f"{self._root}/{folder}", detail=True)
        except MissingObject:
            return {}  # nothing has been written there yet
        return {path[len(self._root) + 1 :]: int(facts.get("size") or 0) for path, facts in found.items()}

    def read(self, name: str) -> bytes:
        return bytes(self._ask("cat_file", self._path(name), size=_LONGEST_READ))

    def read_part(self, name: str, start: int, end: int) -> bytes:
        size = int(self._ask("info", self._path(name))["size"])
        if start >= size:
            return b""
        return bytes(self._ask("cat_file", self._path(name), start=start, end=min(end, size), size=end - start))

    def write(self, name: str, content: bytes) -> None:
        self._ask("pipe_file", self._path(name), content, size=len(content))

    def upload(self, name: str, path: Path) -> None:
        self._ask("put_file", str(path), self._path(name), size=path.stat().st_size)

    def remove(self, names: Iterable[str]) -> None:
        paths = [self._path(name) for name in names]
        for start in range(0, len(paths), _MOST_REMOVED):
            with contextlib.suppress(MissingObject):
                self._ask("rm", paths[start : start + _MOST_REMOVED])

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _ask(self, question: str, *args: Any, size: int = 0, **options: Any) -> Any:
        """Call this method of fsspec; `size`: the bytes that it transfers. Raises StorageFailed, MissingObject."""
        patience, began = ANSWER_S + size / _BYTES_PER_SECOND, time.monotonic()
        if getattr(self._system, "async_impl", False):
            options["timeout"] = patience  # s3fs and botocore both retry, which multiplies
        try:
            return getattr(self._system, question)(*args, **options)
        except FileNotFoundError as error:
            refusal = refusal_in(error)
            if refusal and refusal.code == "NoSuchBucket":
                raise StorageRefused(refusal.sentence()) from error
            raise MissingObject(str(error)) from error
        except TimeoutError as error:
            raise _failure(self._notes.since(began), f"it did not answer within {patience:.0f} s") from error
        except Exception as error:  # each storage has its own exceptions: botocore's, aiohttp's, OSError
            refusal = refusal_in(error) or self._notes.since(began)
            raise _failure(refusal, f"{type(error).__name__}: {error}") from error


def _failure(refusal: Refusal | None, otherwise: str) -> StorageFailed:
    sentence = refusal.sentence() if refusal else ""
    return StorageRefused(sentence) if sentence else StorageFailed(otherwise)


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    """Turn the directory's errors into StorageFailed, to tell them from errors of this machine's own disk."""
    try:
        yield
    except StorageFailed:
        raise
    except FileNotFoundError as error:
        raise MissingObject(str(error)) from error
    except OSError as error:
        raise StorageFailed(str(error)) from error


class DirectoryBucket:
    """A bucket in a directory that all servers have mounted."""

    def __init__(self, root: Path) -> None:
        self.url, self._root = f"file://{root}", root

    def make_folders(self) -> None:
        """Create the folders, only before the first use: if they are missing later, the directory is no longer mounted."""
        for folder in FOLDERS:
            (self._root / folder).mkdir(mode=0o700, exist_ok=True)

    @_storage_errors()
    def names(self, folder: str) -> dict[str, int]:
        found: dict[str, int] = {}
        try:
            with os.scandir(self._root / folder) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            raise self._missing_folder(folder) from None
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # another server has removed it
                found[f"{folder}/{name}"] = (self._root / folder / name).stat().st_size
        return found

    @_storage_errors()
    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    @_storage_errors()
    def read_part(self, name: str, start: int, end: int) -> bytes:
        with (self._root / name).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def write(self, name: str, content: bytes) -> None:
        self._put(name, iter([content]))

    def upload(self, name: str, path: Path) -> None:
        with path.open("rb") as file:
            self._put(name, iter(lambda: file.read(CHUNK), b""))

    @_storage_errors()
    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)

    def _missing_folder(self, folder: str) -> StorageFailed:
        return StorageFailed(f"{self._root / folder} is not there any more: is its directory mounted?")

    @_storage_errors()
    def _put(self, name: str, content: Iterator[bytes]) -> None:
        """Write a temporary file, fsync it and rename it, so that the object appears atomically."""
        target = self._root / name
        new = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with new.open("xb") as file:
                for piece in content:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            new.replace(target)
        except FileNotFoundError:
            raise self._missing_folder(target.parent.name) from None
        finally:
            new.unlink(missing_ok=True)
