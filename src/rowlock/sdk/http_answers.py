"""httpx for both clients: its options, its answers, and its errors as ClientErrors."""

from __future__ import annotations

import re
import warnings
from typing import Any

import httpx

from rowlock import submit_fields
from rowlock.sdk.calls import ApiCall
from rowlock.sdk.client_errors import ServerUnreachable, ServerWarning, refusal
from rowlock.sdk.server_address import ServerAddress

DEFAULT_TIMEOUT = 90.0
"""Seconds until an answer must begin: a submit may wait until a deleted job of the same name is gone."""


class Tries:
    """The attempts of one request: whether to retry, and after how many seconds. Only a request with a key is retried."""

    def __init__(self, call: ApiCall[Any]) -> None:
        self._pauses = iter(submit_fields.PAUSES_S if call.key else ())
        self._is_sent = False

    def pause_after(self, outcome: httpx.Response | httpx.HTTPError) -> float | None:
        """Seconds before the next attempt; None = this outcome is final. A request that never reached the server is not retried,
        unless an earlier attempt may have reached it."""
        if isinstance(outcome, httpx.Response):
            is_open = outcome.status_code in submit_fields.UNDECIDED
        else:
            is_open = isinstance(outcome, (httpx.NetworkError, httpx.RemoteProtocolError))
        self._is_sent = self._is_sent or (is_open and not isinstance(outcome, httpx.ConnectError))
        return next(self._pauses, None) if is_open and self._is_sent else None


def client_options(address: ServerAddress, timeout: float) -> dict[str, Any]:
    """The keyword arguments of `httpx.Client` and `AsyncClient`. Proxies of the environment are ignored: requests carry a token."""
    return {
        "base_url": address.url,
        "verify": address.tls(),
        "timeout": timeout,
        "trust_env": False,
        "headers": {"User-Agent": "rowlock-python"},
    }


def decode_answer(answer: httpx.Response) -> Any:
    """The JSON of an answer that has been read. Raises RequestRefused for a status of 400 or more."""
    try:
        body = answer.json() if answer.content else None
    except ValueError:
        body = answer.text
    if answer.status_code >= 400:
        raise refusal(answer.status_code, body)
    return body


def warn_of(answer: httpx.Response) -> None:
    """Issue a ServerWarning for the Warning header of the answer to an accepted submit."""
    if text := re.fullmatch(r'299 - "(.*)"', answer.headers.get("Warning", "")):
        warnings.warn(re.sub(r"\\(.)", r"\1", text[1]), ServerWarning, stacklevel=5)  # shows the caller of `submit`


def unreachable(address: ServerAddress, error: httpx.HTTPError) -> ServerUnreachable:
    """The error for a request without an answer, with the cause in one sentence."""
    if isinstance(error, httpx.TimeoutException):
        return ServerUnreachable(f"the server at {address.url} did not answer in time")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return ServerUnreachable(
            f"{address.url} is not the server that {address.authority or 'the authority'} belongs to"
        )
    hint = f"; {address.hint}" if address.hint else ""
    return ServerUnreachable(f"the server at {address.url} cannot be reached ({error or type(error).__name__}){hint}")


def stream_broken(address: ServerAddress, error: httpx.HTTPError, last_line: bytes = b"") -> ServerUnreachable:
    """The error for a log stream that broke; the job is not affected. The server says in the `last_line` why it can read no more."""
    if not isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)):
        return unreachable(address, error)
    if last_line.startswith(b"rowlock: the log "):
        return ServerUnreachable(
            f"the log is not complete: {last_line.decode(errors='replace').removeprefix('rowlock: ')}"
        )
    return ServerUnreachable(
        f"the connection to the server at {address.url} broke; the job goes on ({error or 'closed'})"
    )
