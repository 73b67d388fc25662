"""`runai login user|application`, `logout`, `whoami`: log in as a user other than the owner; the session is stored in
the data directory."""

from __future__ import annotations

import os
from typing import Any

from rowlock.cli import client
from rowlock.cli.accounts.users import read_password
from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.login.provider import find_provider, log_in_at_provider, show_login, wants_json
from rowlock.cli.output import show, show_json
from rowlock.cli.session import end_of_session, read_session, remove_session, timestamp_of_end, write_session

TOKEN_PATH = "/api/v1/token"


def login_owner(line: CommandLine) -> int:
    """Log in as the owner, with the token of the data directory. Raises CommandError with other ways when it is not
    readable."""
    directory = data_dir(line)
    if not os.access(os.path.join(directory, "token"), os.R_OK):
        raise CommandError(
            f"{directory} has no token of an owner: log in with a password (`runai login user -u NAME`), or as an application"
            " (`runai login application --client-id NAME`)"
        )
    remove_session(directory)
    server = client.connect(line)
    server.get("/api/v1/clusters")
    return show_login(line, str(server.get("/api/v1/me")["username"]) if wants_json(line) else "")


def login(line: CommandLine) -> int:
    """`rowlock login`: with a password if a name is given, else at the identity provider, else as the owner."""
    if line.user and (line.oidc or line.device):
        raise CommandError(
            "-u is for a password of this server, --oidc and --device for the identity provider: give one of them", 2
        )
    if line.password and not line.user:
        raise CommandError("--password needs a name: -u NAME", 2)
    if line.user:
        return login_user(line)
    if line.oidc or line.device:
        return log_in_at_provider(line, with_code=bool(line.device))
    return login_as_offered(line)


def login_as_offered(line: CommandLine) -> int:
    """Log in as the owner if its token is readable; otherwise at the identity provider, if the server has one."""
    if not os.access(os.path.join(data_dir(line), "token"), os.R_OK) and find_provider(client.connect(line)):
        return log_in_at_provider(line, with_code=False)
    return login_owner(line)


def login_sso(line: CommandLine) -> int:
    """`runai login sso`: at the identity provider, with a browser on this machine; without a provider with the owner's
    token."""
    return log_in_at_provider(line, with_code=False) if find_provider(client.connect(line)) else login_owner(line)


def login_remote_browser(line: CommandLine) -> int:
    """`runai login remote-browser`: at the identity provider, with a code for any browser; without a provider with the
    owner's token."""
    return log_in_at_provider(line, with_code=True) if find_provider(client.connect(line)) else login_owner(line)


def login_user(line: CommandLine) -> int:
    """Log in with a password from the flag, the terminal or stdin."""
    name = line.user
    if not name:
        raise CommandError("`runai login user` needs a name: -u NAME", 2)
    password = line.password or read_password(name, is_new=False)
    return _log_in(line, name, {"grantType": "password", "username": name, "password": password})


def login_application(line: CommandLine) -> int:
    """Log in with a client id and its secret; --save stores the secret, so that later commands renew the token themselves."""
    name = line.client_id
    if not name:
        raise CommandError("`runai login application` needs --client-id NAME", 2)
    if line.secret and line.secret_file:
        raise CommandError("--secret and --secret-file exclude each other: give one of them", 2)
    secret = line.secret or (_first_line(line.secret_file) if line.secret_file else read_password(name, is_new=False))
    kept = {"clientId": name, "clientSecret": secret} if line.save else {}
    return _log_in(
        line, f"app:{name}", {"grantType": "client_credentials", "clientId": name, "clientSecret": secret}, **kept
    )


def _first_line(path: str) -> str:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.readline().strip()
    except OSError as error:
        raise CommandError(f"--secret-file {path} cannot be read ({error.strerror})") from None


def _log_in(line: CommandLine, user: str, body: dict[str, Any], **kept: str) -> int:
    server = client.connect(line)
    answer = server.call("POST", TOKEN_PATH, body=body, anonymous=True)
    write_session(data_dir(line), user, answer, **kept)
    return show_login(line, user)


def logout(line: CommandLine) -> None:
    """End the session of this data directory. The owner's token stays valid."""
    session = read_session(data_dir(line))
    provider = _provider_logout(line) if session and "provider" in session else {}
    was_logged_in = remove_session(data_dir(line))
    if wants_json(line):
        show_json({"result": "logged out" if was_logged_in else "nobody", "providerUrl": provider.get("logoutUrl")})
    elif was_logged_in:
        show("Logged out successfully")
        if provider.get("logoutUrl"):
            show(f"Your session at {provider['name']} goes on. End it there: {provider['logoutUrl']}")
    else:
        show("Nobody is logged in here: commands use the token of the data directory.")


def _provider_logout(line: CommandLine) -> dict[str, Any]:
    """The server's information about its identity provider; {} if it does not answer, since a logout works without it."""
    try:
        return dict(client.connect(line).call("GET", "/api/v1/login", anonymous=True).get("oidc") or {})
    except CommandError:
        return {}


def whoami(line: CommandLine) -> None:
    """Print the name by which the server knows the caller, and when the session ends."""
    try:
        name = client.connect(line).get("/api/v1/me")["username"]
    except CommandError:
        show("You are currently not logged in" + (" to Run:AI" if line.program == "runai" else ""))
        raise
    session = read_session(data_dir(line))
    if wants_json(line):
        until = timestamp_of_end(session) if session else None
        show_json({"username": name, "loggedInAs": session["user"] if session else name, "until": until})
        return
    show(f"User: {name}")
    show(f"Logged in Id: {session['user'] if session else name}")
    if session:
        show(f"Until: {end_of_session(session)}")
