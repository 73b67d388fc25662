"""The error for an owner whose request failed because the real cluster refused the server's credentials, not the owner's."""

from __future__ import annotations

import re

from rowlock.errors import ApiError, Forbidden, Unauthorized, Unavailable

_OF_RBAC = re.compile(r'is forbidden: User "[^"]*" cannot ')
"""Matches RBAC refusals only; admission, quotas and policies use other words."""


def refusal_for_owner(error: ApiError) -> ApiError:
    """Unauthorized becomes 503: the server's credentials have expired, not the owner's. An RBAC refusal gets advice on how to list the
    rights that the server lacks. Any other error is returned as it is."""
    if isinstance(error, Unauthorized):
        return Unavailable(
            f"the credentials of this server do not count any more, your own token does: {error.message}"
        )
    if isinstance(error, Forbidden) and _OF_RBAC.search(error.message):
        advice = "`rowlock doctor --kubeconfig FILE` lists the rights that this server lacks, and how to give them"
        return Forbidden(f"{error.message}; {advice}", details=error.details, causes=error.causes)
    return error
