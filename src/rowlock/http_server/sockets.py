"""The server's listening sockets: on loopback always, on other addresses only on request and with users configured.

Loopback means 127.0.0.1 and ::1 only. The port is the same on all addresses, and that of the last start if it is free.
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
"""Most ports tried until one is free on every address."""


def parse_bind(bind: str) -> str:
    """`--bind` as an address; "" if it is loopback. Raises BadRequest."""
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
    """Names of the server for its certificate, besides those of loopback; the preferred one first."""
    names = [name.strip() for name in extra_names.split(",") if name.strip()]
    if bind in WILDCARD_ADDRESSES:
        return list(dict.fromkeys([*names, *_local_addresses(), socket.gethostname()]))
    return list(dict.fromkeys([*names, bind] if bind else names))


def _local_addresses() -> list[str]:
    """This machine's addresses without loopback and link-local ones."""
    import psutil

    texts = [a.address for given in psutil.net_if_addrs().values() for a in given if a.family in _FAMILIES]
    addresses = [ipaddress.ip_address(text) for text in texts if "%" not in text]
    return [str(a) for a in addresses if not a.is_loopback and not a.is_link_local]


_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def open_listeners(port: int, data: Path, bind: str = "") -> list[socket.socket]:
    """Bound sockets on one port, loopback first. Raises OSError if no port is free or a given one is taken, BadRequest."""
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
    """Listeners for browsers: plain HTTP on loopback, HTTPS on other addresses."""

    local: socket.socket
    elsewhere: list[socket.socket]

    @property
    def sockets(self) -> list[socket.socket]:
        return [self.local, *self.elsewhere]

    @property
    def ports(self) -> tuple[int, int]:
        """The ports of `local` and `elsewhere`; 0 for the latter if there is none."""
        return self.local.getsockname()[1], self.elsewhere[0].getsockname()[1] if self.elsewhere else 0


def parse_ui_address(text: str) -> tuple[str, int]:
    """`--ui-address` as an address ("" if not given) and a port (0 means any). Raises BadRequest."""
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
    """Open the web UI's listeners. Raises BadRequest if the requested port is taken; OSError."""
    address, port = parse_ui_address(ui_address)
    with ExitStack() as undo:
        local = undo.enter_context(open_browser_listener(data, api_port))
        taken = (api_port, local.getsockname()[1])  # the port alone tells the API from the web UI
        elsewhere = _open_elsewhere((address, port), _last_port(data, "uiOthers"), taken) if address else []
        undo.pop_all()
        return BrowserListeners(local, elsewhere)


def _open_elsewhere(where: tuple[str, int], last: int, taken: Sequence[int]) -> list[socket.socket]:
    """Listeners for `--ui-address`, at the last start's port if none is given. Raises BadRequest, OSError."""
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
    """The web UI's listener, on loopback only. It takes the port of the last start if it is free and not the API's, so that
    open pages reconnect. Raises OSError."""
    last = _last_port(data, "ui")
    if last and last != api_port:
        with suppress(OSError):
            return _bind_all([HOST], last)[0]
    return _bind_all([HOST], 0)[0]


def _last_port(data: Path, field: str) -> int:
    """The port of the URL in this field of the last start's server.json; 0 if there is none."""
    try:
        value = json.loads((data / "server.json").read_text())[field]
        return urlsplit(value[0] if isinstance(value, list) else value).port or 0
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return 0


def _enable_keepalive(sock: socket.socket) -> None:
    """Detect within two minutes that an idle connection's peer has vanished; accepted sockets inherit the options. No
    TCP_USER_TIMEOUT, which would disconnect a client that only pauses reading."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # not on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _bind_all(addresses: Sequence[str], port: int) -> list[socket.socket]:
    with ExitStack() as undo:
        listeners = []
        for address in addresses:
            # The protocol is explicit because asyncio disables Nagle's algorithm only for IPPROTO_TCP sockets. With Nagle
            # every answer in two pieces (a log, a watch) waits 40 ms for the client's delayed ACK.
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
