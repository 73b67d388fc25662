"""One POST to an address that somebody else chose: bounded in time and bytes, to addresses that `judge` allows, following no redirect.

The name is resolved once, the addresses that it has are judged, and one of these is connected to: a name that resolves differently the
second time gains nothing. Resolving has threads of its own, because a slow name server would take those of everybody.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from rowlock.documents.notify_address import NotifyAddress
from rowlock.documents.web_address import WebAddress
from rowlock.rest.notifications.message import Message

Judge = Callable[[NotifyAddress, str], str]
"""Why this numeric address may not be connected to for the named one; "" = it may. A mailbox has no numeric address: ""."""
TIMEOUT = 10.0
"""Seconds for everything: name, connection, request, answer."""
_LONGEST_HEAD, _LONGEST_ANSWER = 16 << 10, 1000
_MOST_INTERIM = 8
"""Interim answers, such as 100 Continue, before the real one: each is a piece of work, and a receiver may send them without end."""
_ANSWER_TIMEOUT = 2.0
"""Seconds that the text of an answer may take after its head."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\r|$)")
_RETRIED = frozenset({408, 425, 429})
_RESOLVER = ThreadPoolExecutor(32, "notify-names")


class Answer(NamedTuple):
    """What the receiver answered: the status (of HTTP, or the exit code of a program) and the beginning of the text."""

    status: int
    text: str

    @property
    def is_good(self) -> bool:
        return self.status == 0 or 200 <= self.status < 300


class Undelivered(Exception):
    """Why a message did not arrive, as a clause. `is_final`: another try would end in the same way."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.is_final = reason, is_final


async def post_well(address: WebAddress, message: Message, judge: Judge) -> Answer:
    """Post the message. Returns an answer with a status of 200 to 299. Raises Undelivered."""
    answer = await post(address, message, judge)
    if answer.is_good:
        return answer
    if 300 <= answer.status < 400:
        raise Undelivered(f"it answered {answer.status}, a redirect, which is not followed", is_final=True)
    is_final = 400 <= answer.status < 500 and answer.status not in _RETRIED
    raise Undelivered(f"it answered {answer.status}", is_final=is_final)


async def post(address: WebAddress, message: Message, judge: Judge) -> Answer:
    """Post the message and read the answer, whatever it is. Raises Undelivered."""
    try:
        async with asyncio.timeout(TIMEOUT):
            return await _post(address, message, judge)
    except TimeoutError:
        raise Undelivered(f"no answer within {TIMEOUT:.0f} s") from None
    except ssl.SSLCertVerificationError as error:
        raise Undelivered(f"its certificate is not trusted: {error.verify_message}") from None
    except OSError as error:
        raise Undelivered(f"no connection: {error.strerror or error}") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        raise Undelivered("its answer is not HTTP") from None


async def _post(address: WebAddress, message: Message, judge: Judge) -> Answer:
    loop = asyncio.get_running_loop()
    numeric = await loop.run_in_executor(_RESOLVER, _allowed_address, address, judge)
    tls = await loop.run_in_executor(_RESOLVER, _tls_context) if address.scheme == "https" else None
    reader, writer = await asyncio.open_connection(
        numeric, address.port, ssl=tls, server_hostname=address.host if tls else None, limit=_LONGEST_HEAD
    )
    try:
        writer.write(_request(address, message))
        await writer.drain()
        status = await _read_status(reader)
        return Answer(status, await _read_text(reader))
    finally:
        writer.transport.abort()  # a receiver may keep the connection open, or never take the goodbye of TLS
        with suppress(OSError):
            await writer.wait_closed()


def _allowed_address(address: WebAddress, judge: Judge) -> str:
    """A numeric address of the host that may be connected to. Raises Undelivered."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Undelivered("its host has no address that this server can find") from None
    numeric = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    reasons = {one: judge(address, one) for one in numeric}
    for one, reason in reasons.items():
        if not reason:
            return one
    raise Undelivered(
        f"{reasons[numeric[0]]}, and jobs may not send there: the operator can allow it with"
        f" `rowlock up --notify-allow {address.host}:{address.port}`",
        is_final=True,
    )


@lru_cache(1)
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _request(address: WebAddress, message: Message) -> bytes:
    lines = [
        f"POST {address.target} HTTP/1.1",
        f"Host: {address.origin.partition('://')[2]}",
        *(f"{name}: {value}" for name, value in message.headers.items()),
        f"Content-Length: {len(message.body)}",
        "Accept: */*",
        "Connection: close",
    ]
    return "\r\n".join((*lines, "", "")).encode() + message.body


async def _read_status(reader: asyncio.StreamReader) -> int:
    """The status of the answer, behind interim ones such as 100 Continue."""
    for _ in range(_MOST_INTERIM):
        head = await reader.readuntil(b"\r\n\r\n")
        match = _STATUS.match(head)
        if match is None:
            raise ValueError("no status line")
        if (status := int(match[1])) >= 200:
            return status
    raise ValueError("interim answers alone")


async def _read_text(reader: asyncio.StreamReader) -> str:
    """The beginning of the answer's text, for people; what is slow or endless is cut."""
    text = b""
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            while len(text) < _LONGEST_ANSWER and (piece := await reader.read(_LONGEST_ANSWER - len(text))):
                text += piece
    return "".join(c if c.isprintable() else " " for c in text.decode(errors="replace")).strip()
