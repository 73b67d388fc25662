"""What an S3 storage says when it refuses, as one sentence: what, why, and what to do now.

What fsspec raises does not say it: a storage that is asked too much shows as one that does not answer, since it is asked again until
time is over, and one that redirects as a RecursionError. So `RefusalNotes` listens to the answers themselves.
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
"""What to do about a code of S3."""
_ADVICE_OF_STATUS = {
    301: _ANOTHER_REGION,
    307: _ANOTHER_REGION,
    403: _NOT_ALLOWED,
    429: _ASKED_TOO_MUCH,
    500: _OWN_TROUBLE,
    502: _OWN_TROUBLE,
    503: _ASKED_TOO_MUCH,
}
"""… and about an answer that has none."""
_LONGEST_MESSAGE = 200


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer that is no success. `status`: of HTTP, 0 where it is not known; `code`: S3's, or again the status."""

    status: int
    code: str
    message: str

    def sentence(self) -> str:
        """A hint to a user whose storage cannot be used; "" where nothing is known that helps."""
        advice = ADVICE.get(self.code) or _ADVICE_OF_STATUS.get(self.status, "")
        if not advice:
            return ""
        parts = (f"HTTP {self.status}" if self.status else "", "" if is_digits(self.code) else self.code)
        answer = " ".join(filter(None, parts)) or self.code
        message = " ".join(self.message.split())[:_LONGEST_MESSAGE].rstrip(".")
        return f"it answers {answer}{f' ({message})' if message else ''}; {advice}"


def refusal_of(parsed: Any) -> Refusal | None:
    """What botocore has made of an answer, its `response`; None where that tells of no error."""
    error = parsed.get("Error") if isinstance(parsed, dict) else None
    if not isinstance(error, dict):
        return None
    status = (parsed.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    return Refusal(int(status or 0), str(error.get("Code") or ""), str(error.get("Message") or ""))


def refusal_in(error: BaseException | None) -> Refusal | None:
    """The answer behind an exception of fsspec, which botocore's stands behind."""
    while error is not None:
        if refusal := refusal_of(getattr(error, "response", None)):
            return refusal
        error = error.__cause__
    return None


class RefusalNotes:
    """The last answer that was none of success: `note` is called by botocore for each answer, on fsspec's thread."""

    def __init__(self) -> None:
        self._last: tuple[float, Refusal] | None = None

    def note(self, response: Any = None, **_: Any) -> None:
        """A handler of `needs-retry`: it decides nothing."""
        if response is not None and (refusal := refusal_of(response[1])):
            self._last = time.monotonic(), refusal

    def since(self, moment: float) -> Refusal | None:
        """The last one, where it came after this moment of `time.monotonic`."""
        last = self._last
        return last[1] if last and last[0] >= moment else None
