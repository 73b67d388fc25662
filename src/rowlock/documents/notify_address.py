"""Where a notification goes: an address of the web, a mailbox, or a program of the operator. Parsed strictly."""

from __future__ import annotations

import re
from typing import NamedTuple

from rowlock.documents.web_address import WebAddress, parse_web_address

_MAIL, COMMAND = "mailto:", "command:"
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


class NotifyProgram(NamedTuple):
    """`command:/PATH`: a program that gets the message at its standard input."""

    path: str

    @property
    def origin(self) -> str:
        return self.public_form

    @property
    def public_form(self) -> str:
        """The address for people."""
        return f"{COMMAND}{self.path}"


NotifyAddress = WebAddress | MailAddress | NotifyProgram


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
