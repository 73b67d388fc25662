"""The server over HTTPS, with the standard library: JSON calls, and streams of lines.

`connect` reads `server.json`, `token` and `ca.crt` from the data directory. Every way in which a server can be absent
(never started, dead, wrong certificate, not answering) is one sentence.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import Any

from rowlock.cli import system_server, text_streams
from rowlock.cli.context import data_dir, data_dir_flag, named_data_dir, read_config
from rowlock.cli.grammar import CommandError
from rowlock.cli.interrupts import notice_interrupts
from rowlock.cli.output import tell
from rowlock.cli.server_json import describe_copy, is_alive, read_server_json, running_server
from rowlock.cli.session import is_over, login_again_hint, read_session, renew_session, write_session
from rowlock.cli.start.settings import restart_command

_TIMEOUT = 90.0
"""Seconds until an answer must begin; a submit may wait until a deleted job is gone, and a wait request takes up to 30 s."""


class StatusError(CommandError):
    """The server refused the request: its sentence, the HTTP status and the decoded body."""

    def __init__(self, status: int, message: str, body: Any) -> None:
        super().__init__(message)
        self.status, self.body = status, body


class Unanswered(CommandError):
    """There was no answer. If the request was sent (`is_sent`), it may have been carried out."""

    def __init__(self, message: str, *, is_sent: bool) -> None:
        super().__init__(message)
        self.is_sent = is_sent


def connect(line: Any) -> ServerClient:
    """The client of the data directory's server; each command line has one. Raises CommandError when no server runs."""
    if line.server is not None:
        server: ServerClient = line.server
        return server
    directory = data_dir(line)
    server_json = read_server_json(directory)
    if remote := remote_url(line):
        return _open(line, remote, directory)
    if server_json is None or not is_alive(server_json):
        shared_server = find_system_server(line)
        if shared_server is not None:
            return _remember(line, shared_server)
    if os.path.isfile(directory):
        raise CommandError(
            f"{directory} is a file, and not the data directory of a server (`rowlock up --data-dir DIR`); a real cluster is served"
            " from its kubeconfig with `rowlock up --kubeconfig FILE`",
            2,
        )
    if server_json is None:
        raise CommandError(
            f"no server is running for {directory}{describe_copy(directory)}."
            f" Start one: `rowlock up -d{data_dir_flag(directory)}`"
        )
    if not is_alive(server_json):
        raise CommandError(
            f"the server of {directory} (pid {server_json.get('pid')}) is not running any more. "
            f"Start it again: `{restart_command(server_json)}`; nothing is lost"
        )
    return _open(line, str(server_json["url"]), directory)


def remote_url(line: Any) -> str:
    """The URL that `runai config set --cp-url` stored in the data directory; "" when there is none."""
    if read_server_json(data_dir(line)) is not None:
        return ""
    return str((read_config(line).get("control_plane") or {}).get("url") or "")


def find_system_server(line: Any) -> ServerClient | None:
    """The server for all users of the machine, if one runs and the command line names no data directory. The owner of that
    server is authenticated as its owner."""
    if named_data_dir(line):
        return None
    directory = system_server.system_directory()
    server_json = running_server(directory)
    if server_json is None:
        return None
    own = str(server_json.get("dataDir") or "")
    is_owner = os.access(os.path.join(own, "token"), os.R_OK)
    return ServerClient(str(server_json["url"]), own if is_owner else directory, logs_in=not is_owner)


def _open(line: Any, url: str, directory: str) -> ServerClient:
    return _remember(line, ServerClient(url, directory))


def _remember(line: Any, server: ServerClient) -> ServerClient:
    """Keep the client for the rest of the command line."""
    server.tells_requests = (
        getattr(line, "debug", False) or getattr(line, "verbose", False) or getattr(line, "loglevel", "") == "debug"
    )
    line.server = server
    return server


class ServerClient:
    """A client of one server. It keeps its connection between calls."""

    def __init__(self, url: str, directory: str, *, logs_in: bool = False) -> None:
        """`logs_in`: `directory` is that of a machine's server, whose socket issues tokens."""
        self.url, self.directory, self.logs_in = url, directory, logs_in
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 443)
        self._secure = parts.scheme == "https"
        self._connection_kept_alive: http.client.HTTPConnection | None = None
        self.user_token = ""
        """The token of a user of the --users file on whose behalf the owner acts, or of the Unix user at a machine's server; ""
        = none."""
        self.tells_requests = False
        """Whether to print every request to stderr."""
        self._told_warnings: set[str] = set()

    # ------------------------------------------------------------ calls

    def get(self, path: str, **query: Any) -> Any:
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return self.call("POST", path, body=body, query=query)

    def delete(self, path: str, **query: Any) -> Any:
        return self.call("DELETE", path, query=query)

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        anonymous: bool = False,
    ) -> Any:
        """Send a request and return the decoded answer. With `anonymous` no token is sent. Raises StatusError with the
        server's sentence when it refuses, Unanswered when the connection breaks, CommandError when no answer comes in time."""
        answer = self._send(method, path, body, query, headers=headers, anonymous=anonymous)
        raw = answer.read()
        decoded = _decode_json(raw)
        if answer.status >= 400:
            raise self._refusal(answer.status, decoded, anonymous=anonymous)
        return decoded

    def _refusal(self, status: int, decoded: Any, *, anonymous: bool = False) -> StatusError:
        """The error for a refusal: the server's message; for a session with an invalid token, also how to log in again."""
        message = _error_message(status, decoded, self.directory)
        if status == 401 and not anonymous and (session := read_session(self.directory)):
            hint = f"log in again with {login_again_hint(session)}"
            message = f"Authentication failed. the token has expired or was ended: {hint}"
        return StatusError(status, message, decoded)

    def takes_writes(self) -> bool:
        """Whether the server can write to its disk (it is neither full nor read-only)."""
        try:
            self.get("/readyz")
        except StatusError as refusal:
            return refusal.status != 500  # 503: a real cluster is being read
        return True

    def stream_lines(self, path: str, **query: Any) -> Iterator[bytes]:
        """Yield the lines of a streamed text answer as they arrive. Raises StreamBroken when it breaks off."""
        yield from text_streams.split_lines(self.stream_pieces(path, **query))

    def stream_pieces(self, path: str, **query: Any) -> Iterator[bytes]:
        """As `stream_lines`, in chunks as they arrive: a progress bar may not end a line for hours. Raises StreamBroken."""
        answer = self._send("GET", path, None, query)
        if answer.status >= 400:
            raise self._refusal(answer.status, _decode_json(answer.read()))
        stream, self._connection_kept_alive = (
            self._connection_kept_alive,
            None,
        )  # the stream takes over the kept connection
        if stream is not None and stream.sock is not None:
            stream.sock.settimeout(None)
        try:
            with notice_interrupts():
                yield from text_streams.read_pieces(answer)
        finally:
            answer.close()
            if stream is not None:
                stream.close()

    def open_socket(self) -> socket.socket:
        """Open a new connection for another protocol than HTTP, such as websockets. Raises CommandError."""
        client = ServerClient(self.url, self.directory, logs_in=self.logs_in)
        try:
            connection = client._connection()
        except OSError as error:
            raise CommandError(f"the server at {self.url} cannot be reached ({error})") from None
        raw_socket: socket.socket = connection.sock
        raw_socket.settimeout(_TIMEOUT)
        return raw_socket

    def close(self) -> None:
        if self._connection_kept_alive is not None:
            self._connection_kept_alive.close()
            self._connection_kept_alive = None

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        query: dict[str, Any] | None,
        *,
        headers: dict[str, str] | None = None,
        anonymous: bool = False,
    ) -> http.client.HTTPResponse:
        params = {
            k: str(v).lower() if isinstance(v, bool) else v for k, v in (query or {}).items() if v not in (None, "")
        }
        target = path + ("?" + urllib.parse.urlencode(params) if params else "")
        headers = {"User-Agent": "rowlock-cli", "Accept": "*/*", **(headers or {})}
        if not anonymous:
            headers["Authorization"] = f"Bearer {self.token()}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        is_sent = False
        for fresh in (self._connection_kept_alive is None, True):
            try:
                with notice_interrupts():
                    connection = self._connection()
                    connection.request(method, target, body=data, headers=headers)
                    response = connection.getresponse()
                if self.tells_requests:
                    tell(f"{method} {self.url}{target}: {response.status}")
                self._tell_warning(response)
                return response
            except ssl.SSLCertVerificationError:
                raise CommandError(f"{self.url} is not the server that {self.directory}/ca.crt belongs to") from None
            except (ConnectionError, http.client.BadStatusLine, http.client.CannotSendRequest) as error:
                self.close()
                is_sent = is_sent or not isinstance(error, ConnectionRefusedError)
                if fresh:
                    why = getattr(error, "strerror", None) or "connection closed"
                    raise Unanswered(
                        f"the server at {self.url} does not answer ({why}); check it: `rowlock status`", is_sent=is_sent
                    ) from None
            except TimeoutError:
                raise CommandError(f"the server at {self.url} did not answer within {_TIMEOUT:.0f} s") from None
            except OSError as error:
                raise CommandError(f"the server at {self.url} cannot be reached ({error})") from None
        raise AssertionError("a fresh connection either answers or raises")

    def _tell_warning(self, response: http.client.HTTPResponse) -> None:
        """Print the `Warning` header of an answer, each sentence only once."""
        text = response.headers.get("Warning", "").partition('"')[2].rpartition('"')[0]
        sentence = text.replace('\\"', '"').replace("\\\\", "\\")
        if sentence and sentence not in self._told_warnings:
            self._told_warnings.add(sentence)
            tell(f"warning: {sentence}")

    def _connection(self) -> http.client.HTTPConnection:
        if self._connection_kept_alive is None:
            host, port = self._address
            if self._secure:
                self._connection_kept_alive = http.client.HTTPSConnection(
                    host, port, timeout=_TIMEOUT, context=self._context()
                )
            else:
                self._connection_kept_alive = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
            try:
                self._connection_kept_alive.connect()
            except OSError:
                self._connection_kept_alive = None
                raise
            self._connection_kept_alive.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection_kept_alive

    def _context(self) -> ssl.SSLContext:
        authority = os.path.join(self.directory, "ca.crt")
        if not os.path.exists(authority) and read_server_json(self.directory) is None:
            return (
                ssl.create_default_context()
            )  # another machine's server: its certificate is checked with the system's CAs
        try:
            return ssl.create_default_context(cafile=authority)
        except OSError as error:
            raise CommandError(
                f"{authority} cannot be read ({error.strerror}); `rowlock up -d` writes it again"
            ) from None

    def token(self) -> str:
        """The bearer token of this client: that of the user for whom it acts, of the logged-in user, or of the owner."""
        if self.logs_in and not self.user_token:
            self.user_token = str(system_server.log_in(self.directory)["token"])
        if self.user_token:
            return self.user_token
        if session := read_session(self.directory):
            return self._token_of(session)
        path = os.path.join(self.directory, "token")
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().strip()
        except OSError as error:
            raise CommandError(
                f"{path} cannot be read ({error.strerror}): only the cluster's owner may use it; others log in with `rowlock login"
                " --oidc`, or with `runai login user -u NAME`"
            ) from None

    def _token_of(self, session: dict[str, Any]) -> str:
        """The token of a login. An expired one is renewed if its secret was saved. Raises CommandError when it has
        expired."""
        if not is_over(session):
            return str(session["token"])
        if "refreshToken" in session:
            try:
                return renew_session(self, self.directory, session)
            except StatusError as error:
                if error.status != 401:
                    raise
                hint = login_again_hint(session)
                raise CommandError(f"Authentication failed. {error.message}: log in again with {hint}") from None
        if "clientSecret" not in session:
            raise CommandError(
                f"Authentication failed. the token has expired: log in again with {login_again_hint(session)}"
            )
        kept = {name: str(session[name]) for name in ("clientId", "clientSecret")}
        body = {"grantType": "client_credentials", **kept}
        answer = self.call("POST", "/api/v1/token", body=body, anonymous=True)
        write_session(self.directory, str(session["user"]), answer, **kept)
        return str(answer["accessToken"])


def _decode_json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return {"message": raw.decode(errors="replace").strip()}


def _error_message(status: int, body: Any, directory: str) -> str:
    message = str(body.get("message") or "") if isinstance(body, dict) else ""
    return message or f"the server of {directory} answered with HTTP {status}"


def list_all(server: ServerClient, path: str, name: str, **query: Any) -> list[Any]:
    """Every item of a paged list."""
    items: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        body = server.get(path, offset=offset, limit=500, **query)
        items += body[name]
        offset = body.get("next")
    return items
