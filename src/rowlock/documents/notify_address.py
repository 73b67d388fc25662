"""Where a notification goes: an address of the web, a mailbox, or a program of the operator. Parsed strictly."""

from __future__ import annotations

import os
import re
import stat
from typing import NamedTuple

from rowlock.documents.web_address import WebAddress, parse_web_address

_MAIL, _COMMAND = "mailto:", "command:"
_MAILBOX = re.compile(
    r"(?!-)[A-Za-z0-9._%+=-]{1,64}@([A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9][A-Za-z0-9-]{0,62}){0,8})"
)
"""A plain mailbox: no quotes, no comments, no second address, nothing that `sendmail` could take for a flag."""


class MailAddress(NamedTuple):
    """`mailto:NAME@DOMAIN`, told by the machine's sendmail."""

    mailbox: str

    @property
    def domain(self) -> str:
        return self.mailbox.rpartition("@")[2].lower()

    @property
    def origin(self) -> str:
        return f"{_MAIL}@{self.domain}"

    @property
    def public_form(self) -> str:
        """The address for people: a mailbox is no password."""
        return f"{_MAIL}{self.mailbox}"


class Program(NamedTuple):
    """`command:/PATH`: a program that gets the message at its standard input."""

    path: str

    @property
    def origin(self) -> str:
        return self.public_form

    @property
    def public_form(self) -> str:
        """The address for people."""
        return f"{_COMMAND}{self.path}"


NotifyAddress = WebAddress | MailAddress | Program


def parse_notify_address(text: str) -> WebAddress | MailAddress:
    """Parse what a job may name. Raises ValueError with a clause that follows the name of the field, and does not quote the address."""
    scheme = text.partition(":")[0].lower()
    if scheme == "mailto":
        if not _MAILBOX.fullmatch(text[len(_MAIL) :]):
            raise ValueError("is no plain mailbox: write mailto:NAME@DOMAIN, without a subject")
        return MailAddress(text[len(_MAIL) :])
    if scheme == "command":
        raise ValueError("may be a command for the operator alone: `rowlock up --notify command:/PATH`")
    if scheme not in ("http", "https"):
        raise ValueError("must begin with https://, http:// or mailto:")
    return parse_web_address(text)


def parse_operator_address(text: str) -> NotifyAddress:
    """Parse what `rowlock up --notify` may name. Raises ValueError with a clause, as `parse_notify_address` does."""
    if not text.lower().startswith(_COMMAND):
        return parse_notify_address(text)
    path = text[len(_COMMAND) :]
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
    return Program(path)
