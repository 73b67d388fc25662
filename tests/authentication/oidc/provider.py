"""A small identity provider on loopback: real keys, real signatures, HTTPS; code flow with PKCE, device flow, refresh tokens that are used once.

It signs in whoever `person` says, without asking. What a test sets makes it slow, hostile or away.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from rowlock.authentication.oidc.settings import OidcSettings
from rowlock.http_server.certificates import ensure_certificates

CLIENT, SECRET = "rowlock", "a secret: with/signs"
RSA_KEY = rsa.generate_private_key(65537, 2048)


class Provider:
    """One provider; `url` is its issuer."""

    def __init__(self, directory: Path) -> None:
        files = ensure_certificates(directory)
        self.ca_file = files.ca
        self.person: dict[str, Any] = {"sub": "1234", "email": "ana@lab.example", "groups": ["team", "system:masters"]}
        self.keys: dict[str, Any] = {"rsa-1": RSA_KEY, "ec-1": ec.generate_private_key(ec.SECP256R1())}
        self.lifetime = 3600
        self.asked: list[str] = []
        """Paths, in order."""
        self.answers: dict[str, Any] = {}
        """Path → what is answered instead: bytes, a status, or a function of the handler."""
        self.agreed = threading.Event()
        """Whether somebody has typed the device code."""
        self.refuses_refresh = False
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: set[str] = set()
        provider = self

        class Face(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.answer(self, "GET", "")

            def do_POST(self) -> None:
                provider.answer(self, "POST", self.rfile.read(int(self.headers["content-length"])).decode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # who asks has gone

        self._server = Server(("127.0.0.1", 0), Face)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def settings(self, **changed: Any) -> OidcSettings:
        usual: dict[str, Any] = {"username_claim": "email", "groups_claim": "groups", "ca_file": self.ca_file}
        return OidcSettings(self.url, CLIENT, **{**usual, **changed})

    def flags(self) -> list[str]:
        """Those of `rowlock up`."""
        return [
            "--oidc-issuer-url", self.url, "--oidc-client-id", CLIENT, "--oidc-username-claim", "email",
            "--oidc-groups-claim", "groups", "--oidc-ca-file", str(self.ca_file), "--oidc-name", "Lab",
        ]  # fmt: skip

    # ------------------------------------------------------------ tokens

    def claims(self, **changed: Any) -> dict[str, Any]:
        now = int(time.time())
        usual = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + self.lifetime, **self.person}
        return {name: value for name, value in {**usual, **changed}.items() if value is not None}

    def token(self, kid: str = "rsa-1", **changed: Any) -> str:
        key = self.keys[kid]
        algorithm = "RS256" if isinstance(key, rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(self.claims(**changed), key, algorithm, {"kid": kid})

    def key_set(self) -> dict[str, Any]:
        keys = []
        for kid, key in self.keys.items():
            kind: Any = (
                jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
            )
            keys.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"})
        return {"keys": keys}

    # ------------------------------------------------------------ answers

    def answer(self, face: Any, method: str, body: str) -> None:
        parts = urlsplit(face.path)
        self.asked.append(parts.path)
        given = self.answers.get(parts.path)
        if callable(given):
            return given(face)  # type: ignore[no-any-return]
        if isinstance(given, bytes):
            return self._send(face, 200, given)
        if isinstance(given, int):
            return self._send(face, given, b"{}")
        form = {name: values[-1] for name, values in parse_qs(body or parts.query).items()}
        if parts.path == "/authorize":
            return self._authorize(face, form)
        pages: dict[str, Callable[[dict[str, str]], tuple[int, dict[str, Any]]]] = {
            "/.well-known/openid-configuration": lambda _: (200, self._document()),
            "/keys": lambda _: (200, self.key_set()),
            "/token": lambda form: self._exchange(face, form),
            "/device": lambda _: (200, {"device_code": "device", "user_code": "ABCD-EFGH", "verification_uri": f"{self.url}/type", "interval": 1, "expires_in": 600}),
        }  # fmt: skip
        page = pages.get(parts.path)
        code, content = (404, {}) if page is None else page(form)
        self._send(face, code, json.dumps(content).encode())

    def _send(self, face: Any, code: int, content: bytes, **headers: str) -> None:
        face.send_response(code)
        for name, value in {"content-type": "application/json", "content-length": str(len(content)), **headers}.items():
            face.send_header(name, value)
        face.end_headers()
        face.wfile.write(content)

    def _document(self) -> dict[str, Any]:
        return {
            "issuer": self.url, "jwks_uri": f"{self.url}/keys", "token_endpoint": f"{self.url}/token",
            "authorization_endpoint": f"{self.url}/authorize", "device_authorization_endpoint": f"{self.url}/device",
            "end_session_endpoint": f"{self.url}/logout",
            "scopes_supported": ["openid", "email", "groups", "offline_access"],
        }  # fmt: skip

    def _authorize(self, face: Any, form: dict[str, str]) -> None:
        code = secrets.token_urlsafe(8)
        self.codes[code] = form
        back = f"{form['redirect_uri']}?{urlencode({'code': code, 'state': form['state']})}"
        self._send(face, 302, b"", location=back)

    def _exchange(self, face: Any, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if form.get("client_id") != CLIENT:
            return 401, {"error": "invalid_client"}
        grant, nonce = form.get("grant_type", ""), None
        if grant == "authorization_code":
            asked = self.codes.pop(form.get("code", ""), None)
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if (
                asked is None
                or asked["redirect_uri"] != form.get("redirect_uri")
                or asked["code_challenge"] != challenge
            ):
                return 400, {"error": "invalid_grant", "error_description": "the code is not known"}
            nonce = asked["nonce"]
        elif grant == "refresh_token":
            if self.refuses_refresh or form.get("refresh_token") not in self.refresh_tokens:
                return 400, {"error": "invalid_grant", "error_description": "the session was ended"}
            self.refresh_tokens.remove(form["refresh_token"])
        elif not self.agreed.is_set():
            return 400, {"error": "authorization_pending"}
        renewal = secrets.token_urlsafe(8)
        self.refresh_tokens.add(renewal)
        return 200, {
            "id_token": self.token(nonce=nonce),
            "access_token": "opaque",
            "refresh_token": renewal,
            "token_type": "Bearer",
        }


@contextmanager
def running_provider(directory: Path) -> Iterator[Provider]:
    provider = Provider(directory)
    try:
        yield provider
    finally:
        provider.close()
