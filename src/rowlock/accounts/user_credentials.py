"""Personal credentials, kept in `credentials.json` of the data directory: only their owner uses them, and no answer contains the secrets.

They are not Secrets of the cluster, because users who may read the Secrets of all projects could read them. A workload that names one
gets its own Secret with the values, in its project, deleted with the workload. Backups of the cluster include the file.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rowlock.accounts.private_file import load_private_file, save_private_file
from rowlock.errors import AlreadyExists, BadRequest, NotFound

FILE_NAME = "credentials.json"
MAX_OF_ONE, MAX_BYTES_OF_ONE, MAX_BYTES = 100, 1 << 20, 16 << 20
"""Limits: credentials of one user, bytes of secret data of one user, bytes of secret data of all users."""


class UserCredential(msgspec.Struct, frozen=True):
    """One credential. `user` is its owner's key, `shown` the part of its spec that its owner may see, `data` the data of its Secret."""

    id: str
    user: str
    name: str
    kind: str
    secret_type: str
    shown: dict[str, Any]
    data: dict[str, str]
    created: float
    updated: float
    description: str = ""

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        return sum(len(key.encode()) + len(value.encode()) for key, value in self.data.items())


class _CredentialFile(msgspec.Struct):
    credentials: list[UserCredential]
    version: int = 1


class UserCredentials:
    """The credentials of all users. Reads come from memory; changes take effect once they are on disk."""

    def __init__(
        self, path: Path, credentials: Iterable[UserCredential] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self._path, self._clock, self._writing = path, clock, asyncio.Lock()
        self._by_id: Mapping[str, UserCredential] = {one.id: one for one in credentials}

    @classmethod
    def open(cls, data_dir: Path, clock: Callable[[], float] = time.time) -> UserCredentials:
        """Load the credentials of a data directory. Raises BadRequest if the file is damaged or readable by others."""
        path = data_dir / FILE_NAME
        file = load_private_file(path, _CredentialFile, "the secrets", "credentials")
        return cls(path, file.credentials if file else (), clock)

    def of(self, user: str) -> list[UserCredential]:
        """A user's credentials, sorted by name."""
        return sorted((one for one in self._by_id.values() if one.user == user), key=lambda one: one.name)

    def find_named(self, user: str, name: str) -> UserCredential | None:
        """The user's credential of this name, or None."""
        return next((one for one in self._by_id.values() if (one.user, one.name) == (user, name)), None)

    def find(self, user: str, id_or_name: str) -> UserCredential:
        """The user's credential by id or name. Raises NotFound, also for another user's credential."""
        by_id = self._by_id.get(id_or_name)
        credential = by_id if by_id is not None and by_id.user == user else self.find_named(user, id_or_name)
        if credential is None:
            raise NotFound(
                f"Resource id not found: you have no credential {id_or_name[:80]!r}. GET /api/v1/me/credentials lists yours."
            )
        return credential

    async def create(self, credential: UserCredential) -> UserCredential:
        """Save a credential with a new id and the current time; returns it. Raises AlreadyExists, BadRequest."""
        now = self._clock()
        kept = msgspec.structs.replace(credential, id=str(uuid.uuid4()), created=now, updated=now)
        async with self._writing:
            self._check(kept)
            await self._replace({**self._by_id, kept.id: kept})
        return kept

    async def change(self, credential: UserCredential) -> UserCredential:
        """Replace the credential with the same id. Raises AlreadyExists, BadRequest, NotFound."""
        kept = msgspec.structs.replace(credential, updated=self._clock())
        async with self._writing:
            self.find(kept.user, kept.id)
            self._check(kept)
            await self._replace({**self._by_id, kept.id: kept})
        return kept

    async def delete(self, user: str, identity: str) -> None:
        """Delete a credential. Raises NotFound."""
        async with self._writing:
            credential = self.find(user, identity)
            await self._replace({key: one for key, one in self._by_id.items() if key != credential.id})

    async def forget(self, user: str) -> None:
        """Delete all credentials of a user, so that a later user of the same name does not inherit them."""
        async with self._writing:
            if any(one.user == user for one in self._by_id.values()):
                await self._replace({key: one for key, one in self._by_id.items() if one.user != user})

    def _check(self, credential: UserCredential) -> None:
        others = [one for one in self._by_id.values() if one.id != credential.id]
        own = [one for one in others if one.user == credential.user]
        if any(one.name == credential.name for one in own):
            raise AlreadyExists(f"you have a credential {credential.name!r} already: delete it, or choose another name")
        if len(own) >= MAX_OF_ONE:
            raise BadRequest(f"you have {MAX_OF_ONE} credentials, which is the limit: delete some")
        if sum(one.size for one in own) + credential.size > MAX_BYTES_OF_ONE:
            raise BadRequest(f"all your credentials may have {MAX_BYTES_OF_ONE:,} bytes together: delete some")
        if sum(one.size for one in others) + credential.size > MAX_BYTES:
            raise BadRequest(
                f"the credentials of all users may have {MAX_BYTES:,} bytes together, and have nearly that"
            )

    async def _replace(self, credentials: Mapping[str, UserCredential]) -> None:
        await save_private_file(self._path, _CredentialFile(list(credentials.values())))
        self._by_id = credentials
