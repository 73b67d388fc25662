"""What the operator has said about notifications: `rowlock up --notify`, `--notify-key-file`, `--notify-allow`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rowlock.documents.web_address import WebAddress, parse_web_address
from rowlock.errors import BadRequest
from rowlock.server_settings import ServerSettings
from rowlock.workloads.run_options.notify import key_problem

_LONGEST_FILE = 4096


def _deny_all(numeric: str, port: int) -> str:
    return "this server knows of no address that is safe"


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Where the operator is told about all jobs, and where jobs may tell things."""

    address: WebAddress | None = None
    key: str = ""
    allowed: frozenset[tuple[str, int]] = frozenset()
    """Hosts and ports to which jobs may send although `denial` would refuse their addresses."""
    denial: Callable[[str, int], str] = _deny_all
    """Why jobs may not send to this numeric address and port; "" = they may."""

    def judge_of_job(self, address: WebAddress, numeric: str) -> str:
        """Why a job may not send to this address, of which `numeric` is one of the numbers; "" = it may."""
        if (address.host.lower(), address.port) in self.allowed:
            return ""
        return self.denial(numeric, address.port)


def judge_of_operator(address: WebAddress, numeric: str) -> str:
    """The operator may send anywhere."""
    return ""


def notify_settings(options: ServerSettings, denial: Callable[[str, int], str] = _deny_all) -> NotifySettings:
    """The settings of these flags. Raises BadRequest with what to do."""
    key = _read(options.notify_key_file, "--notify-key-file") if options.notify_key_file else ""
    if key and (problem := key_problem(key)):
        raise BadRequest(f"--notify-key-file: the key in {options.notify_key_file} {problem}")
    if key and not options.notify:
        raise BadRequest("--notify-key-file signs what --notify sends: give both")
    return NotifySettings(_parse_address(options.notify), key, _parse_allowed(options.notify_allow), denial)


def _parse_address(text: str) -> WebAddress | None:
    url = _read(Path(text[1:]), "--notify") if text.startswith("@") else text
    if not text:
        return None
    try:
        return parse_web_address(url)
    except ValueError as error:
        raise BadRequest(f"--notify: the address {error}; write https://HOST/PATH, or @FILE with it inside") from None


def _parse_allowed(text: str) -> frozenset[tuple[str, int]]:
    found = set()
    for item in filter(None, text.split(",")):
        host, _, port = item.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise BadRequest(f"--notify-allow takes HOST:PORT,…, not {item[:80]!r}: jobs then may send there")
        found.add((host.strip("[]").lower(), int(port)))
    return frozenset(found)


def _read(path: Path, flag: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_FILE).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{flag}: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
