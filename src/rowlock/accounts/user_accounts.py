"""The accounts of people, kept in `accounts.json` of the data directory: a name, and the argon2id hash of a password.

They are not objects of the cluster, because a user who may write Secrets could then take over any account. To Kubernetes an account is a
user of that name, with the rights that bindings give. Backups of the cluster include the file.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rowlock.accounts.login_limits import LoginLimits
from rowlock.accounts.passwords import PasswordHashes, check_password
from rowlock.accounts.private_file import load_private_file, save_private_file
from rowlock.errors import AlreadyExists, BadRequest, NotFound, TooManyRequests

FILE_NAME = "accounts.json"
MAX_ACCOUNTS, MAX_NAME_LENGTH = 10_000, 128
FAILURES_OF_ONE, WINDOW_OF_ONE_S = 10, 300.0
"""Wrong passwords for one account from one address, and the seconds for which they count. Beyond that the address must wait."""
FAILURES_OF_ALL, WINDOW_OF_ALL_S = 100, 900.0
"""The same for one account from all addresses, since an attacker may have many. Beyond that every address must wait."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]*")
_RESERVED = frozenset({"rowlock-admin", "kubernetes-admin"})
"""Names of the cluster's owner."""


class UserAccount(msgspec.Struct, frozen=True):
    """One person's account. `generation` changes whenever the account's sessions and tokens are revoked."""

    name: str
    id: str
    hash: str
    generation: str
    created: float
    created_by: str = ""


class _File(msgspec.Struct):
    users: list[UserAccount]
    version: int = 1


def parse_name(name: object) -> str:
    """The name, if an account may have it. Raises BadRequest."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise BadRequest(
            "a user's name, or e-mail address, has lower case letters, digits and . _ @ + -, begins with a letter or digit and has"
            f" at most {MAX_NAME_LENGTH} characters"
        )
    if name in _RESERVED:
        raise BadRequest(f"{name} is the owner of this cluster: choose another name")
    return name


class UserAccounts:
    """All accounts. Reads come from memory; changes take effect once they are on disk."""

    def __init__(
        self, path: Path, accounts: Mapping[str, UserAccount] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._path, self._accounts, self._clock = path, dict(accounts or {}), clock
        self._hashes, self._writing = PasswordHashes(), asyncio.Lock()
        self._by_address = LoginLimits(clock)
        self._by_account = LoginLimits(clock, FAILURES_OF_ALL, WINDOW_OF_ALL_S)
        self._by_both = LoginLimits(clock, FAILURES_OF_ONE, WINDOW_OF_ONE_S)

    @classmethod
    def open(cls, data_dir: Path, clock: Callable[[], float] = time.time) -> UserAccounts:
        """Load the accounts of a data directory. Raises BadRequest if the file is damaged or readable by others."""
        path = data_dir / FILE_NAME
        file = load_private_file(path, _File, "the hashes", "accounts")
        return cls(path, {user.name: user for user in file.users} if file else None, clock)

    def close(self) -> None:
        """Stop the hashing threads; logins fail afterwards."""
        self._hashes.close()

    # ------------------------------------------------------------ reads

    def get(self, name: str) -> UserAccount | None:
        """The account of this name, or None."""
        return self._accounts.get(name)

    def find(self, id_or_name: str) -> UserAccount:
        """The account with this id or name. Raises NotFound."""
        found = self._accounts.get(id_or_name)
        found = found or next((one for one in self._accounts.values() if one.id == id_or_name), None)
        if found is None:
            raise NotFound(f"Resource id not found: there is no user {id_or_name!r}. `rowlock user list` lists them.")
        return found

    @property
    def is_empty(self) -> bool:
        return not self._accounts

    def all(self) -> list[UserAccount]:
        """All accounts, sorted by name."""
        return [self._accounts[name] for name in sorted(self._accounts)]

    # ------------------------------------------------------------ changes

    async def create(self, name: object, password: object, creator: str) -> UserAccount:
        """Add an account. Raises AlreadyExists, BadRequest, TooManyRequests."""
        checked, password = parse_name(name), check_password(password)
        self._check_free(checked)
        hashed = await self._hashes.make(password)
        account = UserAccount(checked, str(uuid.uuid4()), hashed, _new_generation(), self._clock(), creator)
        async with self._writing:
            self._check_free(checked)
            await self._replace({**self._accounts, checked: account})
        return account

    async def set_password(self, name: str, password: object) -> None:
        """Set a password and revoke the user's sessions and tokens. Raises BadRequest, NotFound, TooManyRequests."""
        hashed = await self._hashes.make(check_password(password))
        await self._change(name, hash=hashed)
        self._by_account.forget(name)

    async def end_sessions(self, name: str) -> None:
        """Revoke the user's sessions and tokens. Raises NotFound."""
        await self._change(name)

    async def delete(self, name: str) -> None:
        """Delete an account. Raises NotFound."""
        async with self._writing:
            self.find(name)
            await self._replace({key: value for key, value in self._accounts.items() if key != name})
        self._by_account.forget(name)

    def _check_free(self, name: str) -> None:
        if name in self._accounts:
            raise AlreadyExists(f"user {name!r} already exists: `rowlock user passwd {name}` sets a new password")
        if len(self._accounts) >= MAX_ACCOUNTS:
            raise BadRequest(f"there are {MAX_ACCOUNTS} users already, which is the limit: delete some")

    async def _change(self, name: str, **fields: str) -> None:
        async with self._writing:
            changed = msgspec.structs.replace(self.find(name), generation=_new_generation(), **fields)
            await self._replace({**self._accounts, name: changed})

    async def _replace(self, accounts: dict[str, UserAccount]) -> None:
        await save_private_file(self._path, _File(list(accounts.values())))
        self._accounts = accounts

    # ------------------------------------------------------------ logins

    async def authenticate(self, name: str, password: str, address: str) -> UserAccount | None:
        """The account with this name and password; None if either is wrong. An attempt is counted before the comparison, so that
        concurrent attempts cannot exceed the limits. Raises TooManyRequests."""
        name = name if len(name) <= MAX_NAME_LENGTH else ""  # no account has it, and the limits would keep it in memory
        keys = ((self._by_address, address), (self._by_account, name), (self._by_both, (name, address)))
        for limits, key in keys:
            limits.check(key)
        for limits, key in keys:
            limits.count_failure(key)
        account = self.get(name)
        try:
            matched = await self._hashes.matches(account.hash if account else "", password)
        except TooManyRequests:
            for limits, key in keys:
                limits.forgive(key)
            raise
        if not matched or account is None or self.get(name) is not account:
            return None
        for limits, key in keys:
            limits.forgive(key)
        return account


def _new_generation() -> str:
    return secrets.token_hex(8)
