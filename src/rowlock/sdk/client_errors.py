"""What can go wrong for a program that uses the client: the server cannot be reached, it refuses, or a run ended badly; and what
it is warned of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """Any error of this client. Its text is one sentence for people."""


class ServerUnreachable(ClientError):
    """There is no server, or nothing came from it in time."""


class RequestRefused(ClientError):
    """The server's refusal: its sentence, the HTTP status, and what is wrong with which field of a submit."""

    def __init__(self, status: int, message: str, issues: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, 400 to 599."""
        self.issues = issues
        """Pairs of a field (`spec.image`) and what is wrong with it."""


class ServerWarning(UserWarning):
    """What the server says of a job that it has taken: fields of its pods that have no effect, for one."""


class JobFailed(ClientError):
    """A job of which a result was wanted did not complete."""


def refusal(status: int, body: Any) -> RequestRefused:
    """The error for an answer with a status of 400 or more; `body` is its decoded JSON, or its text."""
    if not isinstance(body, Mapping):
        return RequestRefused(status, str(body).strip() or f"the server answered with HTTP {status}")
    issues = body.get("complianceIssues") or []
    pairs = tuple((str(i.get("field", "")), str(i.get("details", ""))) for i in issues if isinstance(i, Mapping))
    return RequestRefused(status, str(body.get("message") or f"the server answered with HTTP {status}"), pairs)
