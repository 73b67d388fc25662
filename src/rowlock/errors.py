"""The errors of the API; each class has its HTTP status and Kubernetes reason.

    ApiError
    ├── BadRequest            400  BadRequest          the request itself makes no sense
    ├── Unauthorized          401  Unauthorized        missing or invalid credentials
    ├── Forbidden             403  Forbidden           refused by admission or authorization
    ├── NotFound              404  NotFound            no such object, kind or path
    ├── Unsupported           405  MethodNotAllowed    rowlock deliberately does not support this
    ├── NotAcceptable         406  NotAcceptable       no such representation
    ├── Conflict              409  Conflict            another write came first, or a precondition failed
    │   └── AlreadyExists     409  AlreadyExists       the name is taken
    ├── Expired               410  Expired             that revision has been compacted away
    ├── TooLarge              413  RequestEntityTooLarge
    ├── UnsupportedMediaType  415  UnsupportedMediaType
    ├── Invalid               422  Invalid             well-formed but invalid; carries one cause per field
    ├── TooManyRequests       429  TooManyRequests     try again later (evictions, full queues)
    ├── Internal              500  InternalError       a bug or failure in the server
    ├── Unavailable           503  ServiceUnavailable  the store cannot take writes now (disk full, shutting down)
    └── Timeout               504  Timeout             the caller's time limit expired

A message says what happened, why, and what to do now. `ApiError.status()` is the `metav1.Status` that Kubernetes
clients read; `from_status` is its inverse, used by `kube/` and by tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Cause:
    """One problem of one field. `reason`: Kubernetes' term for it (`FieldValueInvalid`, ...). `field`: a JSON path."""

    reason: str
    message: str
    field: str = ""


class ApiError(Exception):
    """Base of all error answers. `details` is Status.details without its causes."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        causes: Sequence[Cause] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        self.has_details = details is not None
        self.causes = tuple(causes)
        self.retry_after = retry_after

    def status(self) -> dict[str, Any]:
        """The `v1.Status` object for this error."""
        details = dict(self.details)
        if self.causes:
            details["causes"] = [
                {"reason": c.reason, "message": c.message, **({"field": c.field} if c.field else {})}
                for c in self.causes
            ]
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
        }
        if details or self.has_details:
            body["details"] = details
        body["code"] = self.code
        return body


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class Unsupported(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class Conflict(ApiError):
    code, reason = 409, "Conflict"


class AlreadyExists(Conflict):
    code, reason = 409, "AlreadyExists"


class Expired(ApiError):
    code, reason = 410, "Expired"


class TooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class Internal(ApiError):
    code, reason = 500, "InternalError"


class UnknownError(ApiError):
    """A client's mistake that a real server reports as an internal error without a reason."""

    code, reason = 500, ""


class Unavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"


class NotTried(Conflict):
    """The write was not made, because an earlier one of its sequence was refused. Never sent to clients."""


ERROR_CLASSES: tuple[type[ApiError], ...] = (
    BadRequest, Unauthorized, Forbidden, NotFound, Unsupported, NotAcceptable, Conflict, AlreadyExists, Expired,
    TooLarge, UnsupportedMediaType, Invalid, TooManyRequests, Internal, Unavailable, Timeout,
)  # fmt: skip
_BY_REASON = {member.reason: member for member in ERROR_CLASSES}
_BY_CODE = {member.code: member for member in reversed(ERROR_CLASSES)}


def from_status(status: Mapping[str, Any], code: int = 500) -> ApiError:
    """The error that a `v1.Status` body stands for; by its reason, else by its HTTP code."""
    number = int(status.get("code") or code)
    member = _BY_REASON.get(str(status.get("reason", ""))) or _BY_CODE.get(number, ApiError)
    details = dict(status.get("details") or {})
    causes = [Cause(c.get("reason", ""), c.get("message", ""), c.get("field", "")) for c in details.pop("causes", [])]
    retry = details.pop("retryAfterSeconds", None)
    return member(str(status.get("message") or f"HTTP {number}"), details=details, causes=causes, retry_after=retry)


def not_found(plural: str, name: str, group: str = "") -> NotFound:
    """`pods "x" not found`, as every Kubernetes client expects it."""
    resource = f"{plural}.{group}" if group else plural
    details = {"name": name, "kind": plural, **({"group": group} if group else {})}
    return NotFound(f'{resource} "{name}" not found', details=details)


def forbidden(plural: str, name: str, why: str, group: str = "", causes: Sequence[Cause] = ()) -> Forbidden:
    """`pods "x" is forbidden: why`, with `causes` if any."""
    resource = f"{plural}.{group}" if group else plural
    details = {"name": name, "kind": plural, **({"group": group} if group else {})}
    return Forbidden(f'{resource} "{name}" is forbidden: {why}', details=details, causes=causes)


def already_exists(
    plural: str, name: str, group: str = "", deleting: bool = False, generated: bool = False
) -> AlreadyExists:
    """`pods "x" already exists`; if `generated`, that no unique name could be generated."""
    resource = f"{plural}.{group}" if group else plural
    details = {"name": name, "kind": plural, **({"group": group} if group else {})}
    text = "object is being deleted: " if deleting else ""
    if generated:
        text = f'{text}{resource} "{name}" already exists'
        advice = "the server was not able to generate a unique name for the object"
        return AlreadyExists(f"{text}, {advice}", details={**details, "retryAfterSeconds": 1})
    return AlreadyExists(f'{text}{resource} "{name}" already exists', details=details)


def conflict(plural: str, name: str, why: str, group: str = "") -> Conflict:
    """`Operation cannot be fulfilled on pods "x": why`."""
    resource = f"{plural}.{group}" if group else plural
    details = {"name": name, "kind": plural, **({"group": group} if group else {})}
    return Conflict(f'Operation cannot be fulfilled on {resource} "{name}": {why}', details=details)


MAX_CAUSES = 500
"""The most causes of one answer: a request of 3 MiB can have a hundred thousand, with an answer of 98 MB."""


def invalid(kind: str, name: str, causes: Sequence[Cause], group: str = "") -> Invalid:
    """`PyTorchJob.kubeflow.org "x" is invalid: field: message`, with several causes in brackets, as the real server; at
    most `MAX_CAUSES`, followed by the number of others."""
    subject = f"{kind}.{group}" if group else kind
    lines = list(dict.fromkeys(f"{c.field}: {c.message}" if c.field else c.message for c in causes))
    if len(lines) > MAX_CAUSES:
        lines[MAX_CAUSES:] = [f"and {len(lines) - MAX_CAUSES} more"]
    text = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    details = {"name": name, "kind": kind, **({"group": group} if group else {})}
    if not name:
        details.pop("name")
    return Invalid(f'{subject} "{name}" is invalid: {text}', details=details, causes=causes[:MAX_CAUSES])
