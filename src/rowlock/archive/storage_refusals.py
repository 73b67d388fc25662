"""Turns the error answers of an S3 storage into one sentence: what, why, and what to do now.

fsspec's exceptions do not tell: throttling shows as a timeout, because requests are retried until the time limit, and a redirect
as a RecursionError. So `RefusalNotes` observes the answers themselves.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rowlock.objects import is_digits

_ANOTHER_REGION = "its region is another: set AWS_REGION and AWS_DEFAULT_REGION to the bucket's, and correct AWS_ENDPOINT_URL where that names one"
_ASKED_TOO_MUCH = "it takes no more requests now: wait a minute (a server that runs asks again by itself)"
_OWN_TROUBLE = "the fault is the storage's: wait, or ask who runs it (a server that runs asks again by itself)"
_NOT_ALLOWED = "these credentials must read, write, list and delete in it: ask its owner for these rights"
_NEW_TOKEN = "its session is over: put new AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN into the server's environment, and start it again"
ADVICE = {
    "AccessDenied": _NOT_ALLOWED,
    "AllAccessDisabled": _NOT_ALLOWED,
    "AuthorizationHeaderMalformed": _ANOTHER_REGION,
    "ExpiredToken": _NEW_TOKEN,
    "IllegalLocationConstraintException": _ANOTHER_REGION,
    "InternalError": _OWN_TROUBLE,
    "InvalidAccessKeyId": "it does not know this key: correct AWS_ACCESS_KEY_ID, and AWS_ENDPOINT_URL where the storage is not Amazon's",
    "InvalidToken": _NEW_TOKEN,
    "NoSuchBucket": "make the bucket, or correct its name in --archive",
    "PermanentRedirect": _ANOTHER_REGION,
    "QuotaExceeded": "it is full: delete what it holds besides, or raise its quota",
    "RequestTimeTooSkewed": "the clock of this machine and the storage's differ: set them (`timedatectl` shows this one's)",
    "ServiceUnavailable": _ASKED_TOO_MUCH,
    "SignatureDoesNotMatch": "the secret is not this key's: correct AWS_SECRET_ACCESS_KEY",
    "SlowDown": _ASKED_TOO_MUCH,
    "TemporaryRedirect": _ANOTHER_REGION,
}
"""Advice by S3 error code."""
_ADVICE_OF_STATUS = {
    301: _ANOTHER_REGION,
    307: _ANOTHER_REGION,
    403: _NOT_ALLOWED,
    429: _ASKED_TOO_MUCH,
    500: _OWN_TROUBLE,
    502: _OWN_TROUBLE,
    503: _ASKED_TOO_MUCH,
}
"""Advice by HTTP status, for answers without a known code."""
_LONGEST_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer. `status`: HTTP status, 0 = unknown; `code`: S3's error code, or the status again."""

    status: int
    code: str
    message: str

    def sentence(self) -> str:
        """The answer and what the user can do about it; "" when there is no advice."""
        advice = ADVICE.get(self.code) or _ADVICE_OF_STATUS.get(self.status, "")
        if not advice:
            return ""
        parts = (f"HTTP {self.status}" if self.status else "", "" if is_digits(self.code) else self.code)
        answer = " ".join(filter(None, parts)) or self.code
        message = " ".join(self.message.split())[:_LONGEST_MESSAGE].rstrip(".")
        return f"it answers {answer}{f' ({message})' if message else ''}; {advice}"


def refusal_of(parsed: Any) -> Refusal | None:
    """The refusal in an answer that botocore parsed (its `response`); None when it is not an error."""
    error = parsed.get("Error") if isinstance(parsed, dict) else None
    if not isinstance(error, dict):
        return None
    status = (parsed.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    return Refusal(int(status or 0), str(error.get("Code") or ""), str(error.get("Message") or ""))


def refusal_in(error: BaseException | None) -> Refusal | None:
    """The refusal in an exception of fsspec or in one of its causes (botocore's)."""
    while error is not None:
        if refusal := refusal_of(getattr(error, "response", None)):
            return refusal
        error = error.__cause__
    return None


class RefusalNotes:
    """Remembers the last error answer: botocore calls `note` for each answer, on fsspec's thread."""

    def __init__(self) -> None:
        self._last: tuple[float, Refusal] | None = None

    def note(self, response: Any = None, **_: Any) -> None:
        """A handler of botocore's `needs-retry` event; it returns None, so it does not influence retries."""
        if response is not None and (refusal := refusal_of(response[1])):
            self._last = time.monotonic(), refusal

    def since(self, moment: float) -> Refusal | None:
        """The last refusal, if it came after `moment` (`time.monotonic`)."""
        last = self._last
        return last[1] if last and last[0] >= moment else None
