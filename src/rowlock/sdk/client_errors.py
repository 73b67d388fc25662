"""The errors and the warning of the client: the server cannot be reached, it refuses a request, or a job did not
complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """Any error of this client. Its text is one sentence for users."""


class ServerUnreachable(ClientError):
    """There is no server, or it did not answer in time."""


class RequestRefused(ClientError):
    """The server's refusal: its message, the HTTP status, and the invalid fields of a submit."""

    def __init__(self, status: int, message: str, issues: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, 400 to 599."""
        self.issues = issues
        """Pairs of a field (`spec.image`) and what is wrong with it."""


class ServerWarning(UserWarning):
    """The server's warning about a job that it has accepted, such as fields of its pods that have no effect."""


class JobFailed(ClientError):
    """A job whose results were requested did not complete, or has no results."""


def refusal(status: int, body: Any) -> RequestRefused:
    """The error for an answer with a status of 400 or more; `body` is its decoded JSON, or its text."""
    if not isinstance(body, Mapping):
        return RequestRefused(status, str(body).strip() or f"the server answered with HTTP {status}")
    issues = body.get("complianceIssues") or []
    pairs = tuple((str(i.get("field", "")), str(i.get("details", ""))) for i in issues if isinstance(i, Mapping))
    return RequestRefused(status, str(body.get("message") or f"the server answered with HTTP {status}"), pairs)
