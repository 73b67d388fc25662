"""Addresses of the web that people write: parsed strictly, and shown without what may be secret in them."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

_LONGEST = 2000
_ALLOWED = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&()*+,;=%]+")
"""The characters of RFC 3986, without the quote, which shells need, and without `#`, which no server is sent."""
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\.?")
_PORTS = {"http": 80, "https": 443}


class WebAddress(NamedTuple):
    """A parsed address. `target`: path and query, as a request line has them."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> str:
        """Scheme, host and port; the port only if it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    @property
    def public_form(self) -> str:
        """The address for people: its path and query may be a password, as with Slack's webhooks, and are left out."""
        return f"{self.origin}/…" if self.target != "/" else f"{self.origin}/"


def parse_web_address(text: str) -> WebAddress:
    """Parse `http[s]://HOST[:PORT]/PATH`. Raises ValueError with a clause that follows the name of the field, and does not quote the
    address."""
    if len(text) > _LONGEST:
        raise ValueError(f"has {len(text):,} characters; {_LONGEST:,} are allowed")
    if not text.lower().startswith(("http://", "https://")):
        raise ValueError("must begin with https:// or http://")
    if not _ALLOWED.fullmatch(text):
        raise ValueError("has a character that an address cannot have: write it as %XX, and leave out what follows a #")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f"is no address: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not have a user name and a password before the host")
    if ":" not in host and not _HOST_NAME.fullmatch(host):
        raise ValueError("names no host after ://")
    if port == 0:
        raise ValueError("has port 0, where nothing listens")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebAddress(parts.scheme, host, port or _PORTS[parts.scheme], target)
