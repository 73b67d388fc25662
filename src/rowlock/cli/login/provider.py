"""Logins at the server's identity provider: with a browser that is redirected to a local port, or with a code for any browser.

The server talks to the provider and keeps the client secret. This program gets the token and the refresh token, and stores
them in a file of mode 0600.
"""

from __future__ import annotations

import time
from typing import Any

from rowlock.cli import client
from rowlock.cli.context import data_dir
from rowlock.cli.grammar import CommandError, CommandLine
from rowlock.cli.output import show, show_json, tell
from rowlock.cli.session import read_session, remove_session, timestamp_of_end, write_session

TOKEN_PATH = "/api/v1/token"
_PATIENCE_S = 600.0
"""Seconds that the user has for the login at the provider."""
_DONE = "<!doctype html><title>rowlock</title><meta name=color-scheme content='light dark'><h1>{}</h1><p>{}</p>"


def find_provider(server: client.ServerClient) -> dict[str, Any] | None:
    """How to log in at the server's identity provider; None when it has none."""
    try:
        found = server.call("GET", "/api/v1/login", anonymous=True)
    except client.StatusError as error:
        if error.status in (401, 404):  # an older server
            return None
        raise
    provider = found.get("oidc") if isinstance(found, dict) else None
    return provider if isinstance(provider, dict) else None


def log_in_at_provider(line: CommandLine, *, with_code: bool) -> int:
    """Log in and store the session; `with_code` needs no browser on this machine. Returns the exit code. Raises
    CommandError."""
    server = client.connect(line)
    provider = find_provider(server)
    if provider is None:
        raise CommandError(
            "this server knows no identity provider (`rowlock up --oidc-issuer-url URL`): log in with a password,"
            " `rowlock login -u NAME`"
        )
    answer = _by_code(line, server, provider) if with_code else _by_browser(line, server, provider)
    directory, kept = data_dir(line), {"provider": str(provider["issuer"])}
    if answer.get("refreshToken"):
        kept["refreshToken"] = str(answer["refreshToken"])
    write_session(directory, "", answer, **kept)
    try:
        user = str(server.get("/api/v1/me")["username"])
    except CommandError:
        remove_session(directory)
        raise
    write_session(directory, user, answer, **kept)
    return show_login(line, user)


def wants_json(line: CommandLine) -> bool:
    """Whether --json was given; `runai login` has no such flag."""
    return bool(getattr(line, "json", False))


def show_login(line: CommandLine, user: str) -> int:
    """Print the result of a login. Returns the exit code 0."""
    if wants_json(line):
        session = read_session(data_dir(line))
        show_json({"result": "logged in", "username": user, "until": timestamp_of_end(session) if session else None})
    else:
        show("Logged in successfully")
    return 0


def _by_code(line: CommandLine, server: client.ServerClient, provider: dict[str, Any]) -> dict[str, Any]:
    begun = server.call("POST", "/api/v1/login/device", anonymous=True)
    say = tell if wants_json(line) else show
    say(f"Open {begun['verificationUri']} in any browser, and type the code {begun['userCode']}")
    if begun.get("verificationUriComplete"):
        say(f"(or open {begun['verificationUriComplete']})")
    tell(f"Waiting until {provider['name']} says who you are …")
    interval, ends = float(begun["interval"]), time.monotonic() + float(begun["expiresIn"])
    body = {"grantType": "device_code", "deviceCode": begun["deviceCode"]}
    while time.monotonic() < ends:
        time.sleep(interval)
        try:
            return dict(server.call("POST", TOKEN_PATH, body=body, anonymous=True))
        except client.StatusError as error:
            reason = error.body.get("details") if isinstance(error.body, dict) else ""
            if reason == "SlowDown" or error.status == 429:
                interval += 5
            elif reason != "AuthorizationPending":
                raise
    raise CommandError("nobody typed the code in time: log in again")


def _by_browser(line: CommandLine, server: client.ServerClient, provider: dict[str, Any]) -> dict[str, Any]:
    import base64
    import hashlib
    import secrets
    import webbrowser

    from rowlock.cli.login.ui import has_display

    verifier, state, nonce = (secrets.token_urlsafe(32) for _ in range(3))
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    host, port = str(line.listen_host or "127.0.0.1"), int(line.listen_port or 0)
    with _open_return(host, port, state) as back:
        redirect_uri = f"http://{host}:{back.server_address[1]}/"
        asked = {"redirectUri": redirect_uri, "state": state, "nonce": nonce, "codeChallenge": challenge}
        url = server.call("POST", "/api/v1/login/browser", body=asked, anonymous=True)["url"]
        (tell if wants_json(line) else show)(f"Open this address in a browser of this machine:\n{url}")
        if has_display():
            webbrowser.open(url)
        tell(f"Waiting until {provider['name']} sends it back … (`rowlock login --device` needs no browser here)")
        code = _wait_for_code(back)
    body = {
        "grantType": "authorization_code", "code": code, "codeVerifier": verifier, "redirectUri": redirect_uri, "nonce": nonce,
    }  # fmt: skip
    return dict(server.call("POST", TOKEN_PATH, body=body, anonymous=True))


def _open_return(host: str, port: int, state: str) -> Any:
    """A local listener to which the provider redirects the browser. It accepts one answer, and only that of this login
    (`state`)."""
    import http.server
    from urllib.parse import parse_qs, urlsplit

    class Return(http.server.BaseHTTPRequestHandler):
        timeout = 10
        server_version = "rowlock"

        def do_GET(self) -> None:
            query = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
            if query.get("state") != state:
                return self._say(404, "Nothing is here", "")
            problem = query.get("error", "") if not query.get("code") else ""
            self.server.outcome = query  # type: ignore[attr-defined]
            if problem:
                self._say(401, "You are not logged in", "The terminal says why.")
            else:
                self._say(200, "Done", "Go back to the terminal; this page can be closed.")

        def _say(self, status: int, title: str, text: str) -> None:
            page = _DONE.format(title, text).encode()
            self.send_response(status)
            for name, value in (
                ("content-type", "text/html; charset=utf-8"), ("content-length", str(len(page))), ("content-security-policy", "default-src 'none'"),
            ):  # fmt: skip
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None:
            """Write no access log to the terminal."""

    class Listener(http.server.HTTPServer):
        timeout = 1.0
        outcome: dict[str, str] | None = None

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Ignore broken connections."""

    if host not in ("127.0.0.1", "localhost"):
        raise CommandError(
            f"--listen-host takes 127.0.0.1 or localhost, not {host}: the answer is for this machine alone", 2
        )
    try:
        return Listener((host, port), Return)
    except (OSError, OverflowError) as error:
        raise CommandError(f"{host}:{port} cannot be listened on ({error}): choose another --listen-port") from None


def _wait_for_code(back: Any) -> str:
    ends = time.monotonic() + _PATIENCE_S
    while back.outcome is None and time.monotonic() < ends:
        back.handle_request()
    outcome = back.outcome or {}
    if not outcome.get("code"):
        reason = (
            " ".join(filter(None, (outcome.get("error"), outcome.get("error_description"))))
            or "nobody came back in time"
        )
        raise CommandError(
            f"the identity provider gave no login: {''.join(c for c in reason if c.isprintable())[:300]}"
        )
    return str(outcome["code"])
