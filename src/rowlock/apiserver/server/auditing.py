"""Writes requests of the Kubernetes API to the audit log: verb and resource, never the body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.types import Scope

from rowlock import kinds
from rowlock.apiserver.http.requests import Call
from rowlock.audit.audit_log import AuditLog

Audit = Callable[[Scope, Call | None, int], None]
"""Called after each request: the ASGI scope, the request (None if not authenticated), the answer's status code or 0."""
_STREAMS = frozenset({"exec", "attach", "portforward"})


def audit_into(audit_log: AuditLog) -> Audit:
    """A callback that records requests in this log."""

    def audit(scope: Scope, call: Call | None, code: int) -> None:
        address = (scope.get("client") or ("",))[0]
        user, impersonator = (call.user.name, call.impersonator) if call else ("", "")
        about, is_stream = dict[str, Any](), False
        if call is not None and (target := call.target) is not None:
            is_stream = target.subresource in _STREAMS
            about = {
                "sensitive": is_stream or target.kind is kinds.SECRET, "verb": call.verb, "group": target.kind.group,
                "resource": target.resource, "namespace": target.namespace, "name": target.name,
            }  # fmt: skip
        code = code or (101 if is_stream else 499)
        audit_log.record(
            "kubernetes", user, address, scope["method"], scope["path"], code=code, impersonator=impersonator, **about
        )

    return audit
