"""JSON patch (RFC 6902): a list of operations from a client. Pure.

Errors are those of the real API server: BadRequest for a malformed patch, 422 without details for one that does not fit
the object.
"""

from __future__ import annotations

from typing import Any

from rowlock.apiserver.schema.json_errors import unmarshal_error
from rowlock.documents.patched_document import PatchedDocument
from rowlock.errors import BadRequest

MAX_OPERATIONS = 10_000


def apply_json_patch(target: Any, patch: Any) -> Any:
    """The value after all operations. Raises BadRequest, Invalid."""
    if patch is None:  # to Go, an empty list
        return target
    if not isinstance(patch, list):
        raise BadRequest(f"error decoding patch: {unmarshal_error(patch, 'a list of operations')}")
    for operation in patch:
        if not isinstance(operation, dict):
            raise BadRequest(f"error decoding patch: {unmarshal_error(operation, 'an operation')}")
        for field in ("op", "path", "from"):
            if not isinstance(operation.get(field), str | None):
                text = unmarshal_error(operation[field], f"the text that {field} is")
                raise BadRequest(f"error decoding patch: {text}")
    if len(patch) > MAX_OPERATIONS:
        raise BadRequest(
            f"the allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}: send several patches"
        )
    return PatchedDocument(target).apply(patch)
