"""Where the server is and how a program authenticates: the owner's data directory, a token, or a login."""

from __future__ import annotations

import json
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowlock.sdk.client_errors import ClientError, ServerUnreachable

LOCAL = "local"
_SOCKET_TIMEOUT = 20.0
_MAX_ANSWER = 64 * 1024


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials for a token: a user with a password, an application with its secret, or (`grant_type` local, `name` the path of
    a socket) the Unix user of this process."""

    grant_type: str
    name: str
    secret: str

    def ask_socket(self) -> str:
        """The token of this process's Unix user, from the socket of the machine's server. Raises ServerUnreachable."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_SOCKET_TIMEOUT)
                connection.connect(self.name)
                with connection.makefile("rb") as stream:
                    answer = json.loads(stream.readline(_MAX_ANSWER))
            return str(answer["token"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ServerUnreachable(f"the machine's server gives no token at {self.name} ({error})") from None

    def body(self) -> dict[str, str]:
        """The body of POST /api/v1/token."""
        if self.grant_type == "password":
            return {"grantType": "password", "username": self.name, "password": self.secret}
        return {"grantType": "client_credentials", "clientId": self.name, "clientSecret": self.secret}

    def __repr__(self) -> str:
        return f"Login({self.grant_type!r}, {self.name!r})"  # keeps the secret out of tracebacks


def choose_login(
    username: str | None, password: str | None, client_id: str | None, client_secret: str | None
) -> Login | None:
    """The login that the arguments specify; None if they specify none. Raises ClientError if only one of a pair is given."""
    if bool(username) != bool(password) or bool(client_id) != bool(client_secret):
        raise ClientError("a login is username and password, or client_id and client_secret: one of the two is missing")
    if username and password:
        return Login("password", username, password)
    return Login("client_credentials", client_id, client_secret) if client_id and client_secret else None


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The base URL without a trailing slash, the CA file for its certificate (None = the system's CAs), and a token or a
    login."""

    url: str
    authority: Path | None = None
    token: str = ""
    login: Login | None = None
    hint: str = ""
    """What to do when the server does not answer."""

    def tls(self) -> ssl.SSLContext:
        """The TLS context for the server. Raises ServerUnreachable when the CA file cannot be read."""
        try:
            return ssl.create_default_context(cafile=None if self.authority is None else str(self.authority))
        except (OSError, ssl.SSLError) as error:
            raise ServerUnreachable(f"the certificate authority {self.authority} cannot be read: {error}") from None

    def __repr__(self) -> str:
        return f"ServerAddress({self.url!r})"


def find_server(
    url: str | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    token: str | None = None,
    login: Login | None = None,
) -> ServerAddress:
    """The server that the arguments specify, else `ROWLOCK_URL` with `ROWLOCK_TOKEN` and `ROWLOCK_CA`, else that of the
    data directory. Raises ServerUnreachable."""
    environ = os.environ
    if url is None and data_dir is None and (url := environ.get("ROWLOCK_URL") or None) is not None:
        token, ca = token or environ.get("ROWLOCK_TOKEN"), ca or environ.get("ROWLOCK_CA") or None
    if url is None:
        return _server_of_directory(data_dir, token, login)
    if not url.startswith("https://"):
        raise ServerUnreachable(
            f"the address {url!r} does not begin with https://: tokens are sent to HTTPS servers only"
        )
    if not token and login is None:
        raise ServerUnreachable(
            f"nothing says who you are to {url}: give a token, or username and password, or client_id and client_secret"
        )
    return ServerAddress(url.rstrip("/"), None if ca is None else Path(ca), token or "", login)


def _server_of_directory(
    data_dir: str | os.PathLike[str] | None, token: str | None, login: Login | None
) -> ServerAddress:
    directory = Path(data_dir or os.environ.get("ROWLOCK_DATA_DIR") or "~/.rowlock").expanduser().absolute()
    named = "" if data_dir is None and "ROWLOCK_DATA_DIR" not in os.environ else f" --data-dir {directory}"
    hint = f"start one: `rowlock up -d{named}`"
    try:
        server_json: Any = json.loads((directory / "server.json").read_text(encoding="utf-8"))
        url = str(server_json["url"])
        if not token and login is None:
            token = (directory / "token").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        if not named and (shared := _server_of_machine()) is not None:
            return shared
        raise ServerUnreachable(f"no server is running for {directory}: {hint}") from None
    except PermissionError:
        raise ServerUnreachable(
            f"{directory} belongs to somebody else: name its address with url, and a token of your own"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ServerUnreachable(f"{directory}/server.json cannot be read ({error}): {hint}") from None
    return ServerAddress(url, directory / "ca.crt", token or "", login, hint)


def _server_of_machine() -> ServerAddress | None:
    """The server for all users of this machine (`rowlock up --system`); None if there is none."""
    directory = Path(os.environ.get("ROWLOCK_SYSTEM_DIR") or "/run/rowlock")
    try:
        url = str(json.loads((directory / "server.json").read_text(encoding="utf-8"))["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return ServerAddress(url, directory / "ca.crt", login=Login(LOCAL, str(directory / "login.sock"), ""))
