"""What the operator has said about notifications: `rowlock up --notify`, `--notify-key-file`, `--notify-allow`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rowlock.documents.notify_address import COMMAND, MailAddress, NotifyAddress, NotifyProgram, parse_notify_address
from rowlock.documents.web_address import WebAddress
from rowlock.errors import BadRequest
from rowlock.rest.notifications.programs import find_sendmail
from rowlock.server_settings import ServerSettings
from rowlock.workloads.run_options.notify import key_problem

_LONGEST_FILE = 4096


def _deny_all(numeric: str, port: int) -> str:
    return "this server knows of no address that is safe"


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """Where the operator is told about all jobs, and where jobs may tell things."""

    address: NotifyAddress | None = None
    key: str = ""
    allowed: frozenset[tuple[str, int]] = frozenset()
    """Hosts and ports to which jobs may send although `denial` would refuse their addresses."""
    mail_domains: frozenset[str] = frozenset()
    """Domains to whose mailboxes jobs may send e-mail."""
    denial: Callable[[str, int], str] = _deny_all
    """Why jobs may not send to this numeric address and port; "" = they may."""

    def judge_of_job(self, address: NotifyAddress, numeric: str) -> str:
        """Why a job may not send to this address, of which `numeric` is one of the numbers; "" = it may."""
        if isinstance(address, MailAddress):
            return "" if address.domain in self.mail_domains else f"jobs may not send e-mail to @{address.domain}"
        if isinstance(address, NotifyProgram):
            return "jobs may not name commands"
        if (address.host.lower(), address.port) in self.allowed:
            return ""
        return self.denial(numeric, address.port)


def judge_of_operator(address: NotifyAddress, numeric: str) -> str:
    """The operator may send anywhere."""
    return ""


def notify_settings(options: ServerSettings, denial: Callable[[str, int], str] = _deny_all) -> NotifySettings:
    """The settings of these flags. Raises BadRequest with what to do."""
    key = _read(options.notify_key_file, "--notify-key-file") if options.notify_key_file else ""
    if key and (problem := key_problem(key)):
        raise BadRequest(f"--notify-key-file: the key in {options.notify_key_file} {problem}")
    if key and not options.notify:
        raise BadRequest("--notify-key-file signs what --notify sends: give both")
    address = _parse_address(options.notify)
    if key and not isinstance(address, WebAddress):
        raise BadRequest("--notify-key-file signs what goes to an address of the web: leave it out")
    if isinstance(address, MailAddress) and not find_sendmail():
        raise BadRequest(
            "--notify: this machine has no sendmail: install a mail transfer agent, such as msmtp-mta, or name a command"
        )
    items = list(filter(None, options.notify_allow.split(",")))
    domains = frozenset(item[1:].lower() for item in items if item.startswith("@"))
    return NotifySettings(
        address, key, _parse_allowed(item for item in items if not item.startswith("@")), domains, denial
    )


def _parse_address(text: str) -> NotifyAddress | None:
    url = _read(Path(text[1:]), "--notify") if text.startswith("@") else text
    if not text:
        return None
    try:
        return parse_operator_address(url)
    except ValueError as error:
        raise BadRequest(
            f"--notify: the address {error}; write https://HOST/PATH, mailto:NAME@DOMAIN, command:/PATH, or @FILE with it inside"
        ) from None


def parse_operator_address(text: str) -> NotifyAddress:
    """Parse what `rowlock up --notify` may name. Raises ValueError with a clause, as `parse_notify_address` does."""
    if not text.lower().startswith(COMMAND):
        return parse_notify_address(text)
    path = text[len(COMMAND) :]
    if not os.path.isabs(path):
        raise ValueError("must name the program by its whole path, without arguments: command:/PATH")
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ValueError(f"names a program that cannot be run: {error.strerror}") from None
    if not stat.S_ISREG(mode) or not os.access(path, os.X_OK):
        raise ValueError("names a file that is no program: `chmod +x` makes a script one; arguments are not allowed")
    if mode & stat.S_IWOTH:
        raise ValueError("names a program that everybody may change: `chmod o-w` it first")
    return NotifyProgram(path)


def _parse_allowed(items: Iterable[str]) -> frozenset[tuple[str, int]]:
    found = set()
    for item in items:
        host, _, port = item.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise BadRequest(
                f"--notify-allow takes HOST:PORT or @DOMAIN,…, not {item[:80]!r}: jobs then may send there"
            )
        found.add((host.strip("[]").lower(), int(port)))
    return frozenset(found)


def _read(path: Path, flag: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_FILE).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{flag}: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
