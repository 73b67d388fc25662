"""The stored session: `authentication.json` (mode 0600) in the data directory. Run:ai's Python client reads the same file."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rowlock.cli.grammar import CommandError

FILE_NAME = "authentication.json"
_EARLY = 30.0
"""Seconds before its expiry from which a token counts as expired."""


def read_session(directory: str) -> dict[str, Any] | None:
    """The session of a data directory; None when there was no login. Raises CommandError when the file cannot be read."""
    path = os.path.join(directory, FILE_NAME)
    try:
        with open(path, encoding="utf-8") as file:
            session = json.load(file)
        session["token"] = base64.b64decode(session["accessToken"]).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} cannot be read ({error}): `runai logout` removes it") from None
    return dict(session)


def write_session(directory: str, user: str, answer: dict[str, Any], **kept: str) -> None:
    """Store the token of a login. `kept`: fields that allow renewal without the user, such as a client secret."""
    session = {
        "accessToken": base64.b64encode(answer["accessToken"].encode()).decode(),
        "user": user,
        "expiresAt": time.time() + float(answer["expiresIn"]),
        **kept,
    }
    path = os.path.join(directory, FILE_NAME)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(session, file)
    os.replace(temporary, path)


def remove_session(directory: str) -> bool:
    """Delete the session; returns whether there was one."""
    had_session = os.path.exists(os.path.join(directory, FILE_NAME))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, FILE_NAME))
    return had_session


def is_over(session: dict[str, Any]) -> bool:
    return time.time() > float(session.get("expiresAt") or 0) - _EARLY


def renew_session(server: Any, directory: str, session: dict[str, Any]) -> str:
    """Renew an expired token of the identity provider, through the server, and return it. A refresh token may be valid only once,
    so concurrent commands renew under a lock. Raises CommandError."""
    with _locked_session(directory):
        current = read_session(directory)
        if current is not None and not is_over(current):
            return str(current["token"])
        body = {"grantType": "refresh_token", "refreshToken": (current or session)["refreshToken"]}
        answer = server.call("POST", "/api/v1/token", body=body, anonymous=True)
        kept = {"provider": str(session.get("provider") or ""), "refreshToken": str(answer.get("refreshToken") or "")}
        write_session(directory, str(session["user"]), answer, **{name: text for name, text in kept.items() if text})
        return str(answer["accessToken"])


@contextlib.contextmanager
def _locked_session(directory: str) -> Iterator[None]:
    import fcntl

    with open(os.open(os.path.join(directory, f"{FILE_NAME}.lock"), os.O_RDWR | os.O_CREAT, 0o600), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def timestamp_of_end(session: dict[str, Any]) -> str:
    """Until when the login is valid, as RFC 3339 in UTC."""
    return datetime.fromtimestamp(float(session.get("expiresAt") or 0), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def end_of_session(session: dict[str, Any]) -> str:
    """Text for the user: until when the login is valid."""
    ends = datetime.fromtimestamp(float(session.get("expiresAt") or 0), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{ends}, then renewed by itself" if "refreshToken" in session or "clientSecret" in session else ends


def login_again_hint(session: dict[str, Any]) -> str:
    """The command that logs in again after the token has expired."""
    user = str(session.get("user") or "")
    if "provider" in session:
        return "`rowlock login --oidc`"
    if user.startswith("app:"):
        return f"`runai login application --client-id {user.removeprefix('app:')}`"
    return f"`runai login user -u {user}`"
