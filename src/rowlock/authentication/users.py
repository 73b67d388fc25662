"""Static tokens: the owner's, from the data directory, and those of other users, from a token file.

The file has kube-apiserver's format (`--token-auth-file`): a line `token,user,uid,"group,group"` per user. Role bindings
decide what each user may do (`authorization/`): `system:masters` may do everything; the groups `rowlock:admins`,
`rowlock:editors` and `rowlock:viewers` have the roles of those names for all projects.
"""

from __future__ import annotations

import csv
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rowlock.errors import BadRequest

MASTERS, AUTHENTICATED = "system:masters", "system:authenticated"
LOOPBACK_ADDRESSES = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
"""Our addresses that other machines cannot reach."""
MIN_TOKEN_LENGTH = 20
"""Fewest characters of a token; shorter ones could be guessed over a network."""


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = (AUTHENTICATED,)
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)
    """Other attributes from the authenticator, such as the pod that a token is bound to."""

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups


ADMIN = User("rowlock-admin", (MASTERS, AUTHENTICATED))
"""The owner of the data directory."""


def service_account_groups(name: str) -> tuple[str, ...]:
    """The groups of a service account, given its full user name; () for other users."""
    parts = name.split(":")
    if parts[:2] != ["system", "serviceaccount"] or len(parts) != 4:
        return ()
    return "system:serviceaccounts", f"system:serviceaccounts:{parts[2]}"


class TokenAuthenticator:
    """Resolves tokens to users. With `loopback_only`, the owner's token is accepted only on our loopback addresses."""

    def __init__(
        self,
        owner: str,
        users: Mapping[str, User],
        *,
        loopback_only: bool = False,
        service_accounts: Callable[[str], User | None] | None = None,
    ) -> None:
        # A dictionary lookup compares hashes keyed with a secret of this process, so its timing reveals nothing about tokens.
        self._users = {**users, **({owner: ADMIN} if owner else {})}
        self._loopback_only = loopback_only
        self._service_accounts = service_accounts

    def authenticate(self, token: str, address: str = "127.0.0.1") -> User | None:
        """The user of a token, or None. `address` is our address that the client connected to."""
        user = self._users.get(token)
        if user is None and self._service_accounts is not None:
            return self._service_accounts(token)
        return None if user is ADMIN and self._loopback_only and address not in LOOPBACK_ADDRESSES else user


def read_token_file(path: Path) -> dict[str, User]:
    """The users of a token file, by token. Raises BadRequest, which says what to do."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise BadRequest(
                    f"others can read the tokens in {path} (mode {mode:04o}): `chmod 600 {path}`, and make new tokens"
                    " if somebody may have seen these"
                )
            users = dict(_parse_users(path, file))
    except OSError as error:
        raise BadRequest(f"the users' file {path} cannot be read ({error.strerror}): --users names it") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadRequest(f'{path} is no file of lines `token,user,uid,"group,group"`: {error}') from None
    if not users:
        raise BadRequest(f'{path} names no user: it wants a line `token,user,uid,"group,group"` for each')
    return users


def _parse_users(path: Path, lines: Iterator[str]) -> Iterator[tuple[str, User]]:
    line_of_token: dict[str, int] = {}
    rows = csv.reader(lines)
    for row in rows:
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith("#"):
            continue
        where = f"{path}, line {rows.line_num}"
        if len(cells) < 3 or not cells[1]:
            raise BadRequest(f'{where}: a user is a line `token,user,uid,"group,group"`')
        if len(cells) > 4:
            raise BadRequest(f'{where}: several groups stand in one pair of quotes: token,user,uid,"group,group"')
        token, name, uid = cells[:3]
        if len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token:
            raise BadRequest(
                f"{where}: the token of {name} can be guessed or cannot be sent: {MIN_TOKEN_LENGTH} or more letters and"
                " digits, please; `openssl rand -hex 32` makes a good one"
            )
        if name == ADMIN.name:
            raise BadRequest(f"{where}: {name} is the owner of this cluster, whose token the data directory holds")
        if token in line_of_token:
            raise BadRequest(
                f"{where}: the token of {name} is that of line {line_of_token[token]} too: one for each, please"
            )
        line_of_token[token] = rows.line_num
        groups = tuple(filter(None, (group.strip() for group in cells[3].split(",")))) if len(cells) > 3 else ()
        yield token, User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))), uid)
