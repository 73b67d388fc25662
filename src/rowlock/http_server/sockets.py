"""Where the server listens: on loopback always, and elsewhere only where that was asked for and users are named.

Everything but 127.0.0.1 and ::1 is elsewhere. The port is the same on all addresses, and that of last time if it is free.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import socket
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rowlock.authentication.users import LOOPBACK_ADDRESSES
from rowlock.errors import BadRequest

HOST = "127.0.0.1"
WILDCARD_ADDRESSES = ("0.0.0.0", "::")
_TRIES = 20
"""Ports that are tried until one is free on every address."""


def parse_bind(bind: str) -> str:
    """`--bind` as an address, "" when it is loopback's own. Raises BadRequest."""
    if not bind or bind == "localhost":
        return ""
    try:
        address = str(ipaddress.ip_address(bind.strip("[]")))
    except ValueError:
        raise BadRequest(
            f'--bind takes an address of this machine, as 192.0.2.7 or 0.0.0.0 for all of them, not "{bind}"'
        ) from None
    return "" if address in LOOPBACK_ADDRESSES else address


def server_names(bind: str, extra_names: str) -> list[str]:
    """What clients may call the server besides loopback's names: for its certificate, the best first."""
    names = [name.strip() for name in extra_names.split(",") if name.strip()]
    if bind in WILDCARD_ADDRESSES:
        return list(dict.fromkeys([*names, *_local_addresses(), socket.gethostname()]))
    return list(dict.fromkeys([*names, bind] if bind else names))


def _local_addresses() -> list[str]:
    """This machine's addresses, but for loopback's and those of one link."""
    import psutil

    texts = [a.address for given in psutil.net_if_addrs().values() for a in given if a.family in _FAMILIES]
    addresses = [ipaddress.ip_address(text) for text in texts if "%" not in text]
    return [str(a) for a in addresses if not a.is_loopback and not a.is_link_local]


_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def open_listeners(port: int, data: Path, bind: str = "") -> list[socket.socket]:
    """Bound sockets on one port: loopback's first. Raises OSError when an explicit port is taken, BadRequest."""
    addresses = [bind] if bind in WILDCARD_ADDRESSES else [HOST, bind] if bind else [HOST]
    for candidate in (port,) if port else (_last_port(data, "url"), *[0] * _TRIES):
        try:
            return _bind_all(addresses, candidate)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                local = ", ".join([*_local_addresses(), *WILDCARD_ADDRESSES])
                raise BadRequest(f"{bind} is not an address of this machine: --bind takes one of {local}") from None
            if port:
                raise
    raise OSError(errno.EADDRINUSE, f"no port is free on {' and '.join(addresses)}")


class BrowserListeners(NamedTuple):
    """Where browsers come in: loopback's plain port, and listeners of another address, for HTTPS."""

    local: socket.socket
    elsewhere: list[socket.socket]

    @property
    def sockets(self) -> list[socket.socket]:
        return [self.local, *self.elsewhere]

    @property
    def ports(self) -> tuple[int, int]:
        """0 where there is no other address."""
        return self.local.getsockname()[1], self.elsewhere[0].getsockname()[1] if self.elsewhere else 0


def parse_ui_address(text: str) -> tuple[str, int]:
    """`--ui-address` as an address and a port; "" where none was given, port 0 is any. Raises BadRequest."""
    if not text:
        return "", 0
    address, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (text.count(":") > 1 and not text.startswith("[")):
        address, port = text, "0"
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise BadRequest(f"--ui-address takes ADDRESS or ADDRESS:PORT, as 0.0.0.0:8443, not {text!r}")
    try:
        return str(ipaddress.ip_address(address.strip("[]"))), int(port)
    except ValueError:
        raise BadRequest(
            f"--ui-address takes an address of this machine and a port, as 192.0.2.7:8443 or 0.0.0.0:8443, not {text!r}"
        ) from None


def open_browser_listeners(data: Path, api_port: int, ui_address: str) -> BrowserListeners:
    """Both. Raises OSError where a port that was asked for is taken, BadRequest."""
    address, port = parse_ui_address(ui_address)
    with ExitStack() as undo:
        local = undo.enter_context(open_browser_listener(data, api_port))
        taken = (api_port, local.getsockname()[1])  # whose face a request is for is told by the port alone
        elsewhere = _open_elsewhere((address, port), _last_port(data, "uiOthers"), taken) if address else []
        undo.pop_all()
        return BrowserListeners(local, elsewhere)


def _open_elsewhere(where: tuple[str, int], last: int, taken: Sequence[int]) -> list[socket.socket]:
    """Raises BadRequest, OSError."""
    address, port = where
    if port in taken:
        raise BadRequest(f"port {port} is the server's own already: choose another with --ui-address {address}:PORT")
    for candidate in (port,) if port else (last, *[0] * _TRIES):
        try:
            listeners = _bind_all([address], candidate)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                choice = ", ".join([*_local_addresses(), *WILDCARD_ADDRESSES])
                raise BadRequest(
                    f"{address} is not an address of this machine: --ui-address takes one of {choice}"
                ) from None
            if port:
                raise BadRequest(
                    f"port {port} of {address} cannot be listened on ({error.strerror}): choose another with --ui-address {address}:PORT"
                ) from None
            continue
        if listeners[0].getsockname()[1] not in taken:
            return listeners
        listeners[0].close()
    raise OSError(errno.EADDRINUSE, f"no port is free on {address}")


def open_browser_listener(data: Path, api_port: int) -> socket.socket:
    """The web UI's listener, on loopback alone: the port of last time if it is free and not the API's, so that open pages find
    the server again. Raises OSError."""
    last = _last_port(data, "ui")
    if last and last != api_port:
        with suppress(OSError):
            return _bind_all([HOST], last)[0]
    return _bind_all([HOST], 0)[0]


def _last_port(data: Path, field: str) -> int:
    """Of the URL in this field of last time's server.json; 0 where there is none."""
    try:
        value = json.loads((data / "server.json").read_text())[field]
        return urlsplit(value[0] if isinstance(value, list) else value).port or 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return 0


def _enable_keepalive(sock: socket.socket) -> None:
    """A client whose machine has gone without a word is noticed within two minutes where nothing is being sent: accepted
    sockets inherit this. (No TCP_USER_TIMEOUT: it would end a reader that only pauses.)"""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # some systems know other names, or none
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bind_all(addresses: Sequence[str], port: int) -> list[socket.socket]:
    with ExitStack() as undo:
        listeners = []
        for address in addresses:
            # With the protocol spelled out: asyncio switches Nagle's algorithm off only where it reads IPPROTO_TCP, and
            # with it on every answer in two pieces (a log, a watch) waits 40 ms for the client's delayed ACK.
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            sock = undo.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _enable_keepalive(sock)
            if address == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address, port))
            port = sock.getsockname()[1]
            listeners.append(sock)
        undo.pop_all()
        return listeners
