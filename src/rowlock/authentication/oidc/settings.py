"""How an identity provider is configured: the settings `--oidc-…`, under kube-apiserver's names for them."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rowlock.errors import BadRequest
from rowlock.server_settings import ServerSettings

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Asymmetric signatures only: `none` proves nothing, and with HS256 a party that can verify a token can also make one."""
DEFAULT_ALGORITHMS = ("RS256", "ES256")
DEFAULT_PREFIX = "oidc:"
"""Prefix of a provider's user and group names, so that they cannot equal names of the cluster's own users."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """One provider, and what its claims mean here."""

    issuer: str
    client_id: str
    client_secret: str = ""
    name: str = ""
    """The provider's name on the login page."""
    username_claim: str = "sub"
    username_prefix: str = DEFAULT_PREFIX
    groups_claim: str = ""
    groups_prefix: str = DEFAULT_PREFIX
    required_claims: tuple[tuple[str, str], ...] = ()
    ca_file: Path | None = None
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS

    @property
    def label(self) -> str:
        """The display name: the configured name, else the issuer's host."""
        return self.name or urlsplit(self.issuer).hostname or self.issuer


def parse_settings(settings: ServerSettings) -> OidcSettings | None:
    """The provider's settings; None if no provider is configured. Raises BadRequest naming the flag to change."""
    if not any(value for name, value in settings._asdict().items() if name.startswith("oidc_")):
        return None
    if not settings.oidc_issuer_url or not settings.oidc_client_id:
        raise BadRequest("an identity provider needs both: --oidc-issuer-url URL and --oidc-client-id ID")
    check_address(settings.oidc_issuer_url, "--oidc-issuer-url")
    ca_file = settings.oidc_ca_file
    if ca_file is not None and not ca_file.is_file():
        raise BadRequest(f"there is no file {ca_file}: --oidc-ca-file names the certificate authority of the provider")
    return OidcSettings(
        settings.oidc_issuer_url,
        settings.oidc_client_id,
        _read_secret(settings.oidc_client_secret_file),
        settings.oidc_name,
        settings.oidc_username_claim or "sub",
        _prefix(settings.oidc_username_prefix),
        settings.oidc_groups_claim,
        _prefix(settings.oidc_groups_prefix),
        _required_claims(settings.oidc_required_claim),
        ca_file,
        _algorithms(settings.oidc_signing_algs),
    )


def check_address(url: str, what: str) -> None:
    """Raises BadRequest unless the URL is https://HOST/PATH: over plain HTTP an attacker on the path could replace the keys."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme == "https" and parts.hostname and not (parts.username or parts.query or parts.fragment)
        _ = parts.port
    except ValueError:
        fits = False
    if not fits:
        raise BadRequest(f"{what} must be https://HOST/PATH without a user, query or fragment, but is {url[:200]!r}")


def _prefix(text: str) -> str:
    """`-` means no prefix, as in kube-apiserver."""
    return "" if text == "-" else text or DEFAULT_PREFIX


def _required_claims(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if any(not (name and sign) for name, sign, _ in pairs):
        raise BadRequest(f"--oidc-required-claim takes CLAIM=VALUE, with commas between several, not {text!r}")
    return tuple((name, value) for name, _, value in pairs)


def _algorithms(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name) or DEFAULT_ALGORITHMS
    if unknown := [name for name in names if name not in ALGORITHMS]:
        raise BadRequest(f"--oidc-signing-algs takes {', '.join(ALGORITHMS)}, not {', '.join(unknown)}")
    return names


def _read_secret(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            secret = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"--oidc-client-secret-file {path} cannot be read ({error})") from None
    if mode & 0o077:
        raise BadRequest(f"others can read the secret in {path} (mode {mode:04o}): `chmod 600 {path}`")
    return secret
