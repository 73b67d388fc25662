"""Sends a submit and retries it when the answer is lost; the server recognizes a retry by its `Idempotency-Key`. A refusal is told with
the flags that the user typed in place of the request's field names.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from rowlock import submit_fields
from rowlock.cli import client
from rowlock.cli.client import StatusError
from rowlock.cli.output import tell


def send_submit(server: client.ServerClient, path: str, body: Any, **query: Any) -> Any:
    """POST a workload and return the decoded JSON. When the answer is lost, or leaves open whether the job was created, send the
    same request again, up to three times. At most one job results, however many attempts reach the server. Raises like
    `ServerClient.call`."""
    import uuid

    headers, pauses = {submit_fields.KEY_HEADER: str(uuid.uuid4())}, iter(submit_fields.PAUSES_S)
    is_sent, told = False, ""
    while True:
        try:
            return server.call("POST", path, body=body, query=query, headers=headers)
        except (client.StatusError, client.Unanswered) as error:
            is_sent = is_sent or _may_have_happened(error)
            pause = next(pauses, None)
            if pause is None or not is_sent or _is_decided(error):
                raise
            tell(f"The submit is sent again in {pause:g} s" + (f": {error.message}" if error.message != told else "."))
            told = error.message
        time.sleep(pause)


def _may_have_happened(error: client.StatusError | client.Unanswered) -> bool:
    return error.is_sent if isinstance(error, client.Unanswered) else not _is_decided(error)


def _is_decided(error: client.StatusError | client.Unanswered) -> bool:
    """Whether the server has refused the submit for good, so that another attempt would be refused too."""
    return isinstance(error, client.StatusError) and error.status not in submit_fields.UNDECIDED


def message_in_flags(refusal: StatusError, flag_of: Mapping[str, str]) -> str:
    """The server's message with flags instead of field names. `flag_of` maps a field of the request to its flag."""
    issues = refusal.body.get("complianceIssues") if isinstance(refusal.body, dict) else None
    if not issues or not any(_flag_of_field(i["field"], flag_of) for i in issues):
        return refusal.message
    flag_errors = dict.fromkeys(
        (_flag_of_field(i["field"], flag_of) or i["field"], _name_flags(i["details"], i["field"], flag_of))
        for i in issues
    )
    return "\n".join(f"{flag}: {details}" for flag, details in flag_errors)


def _flag_of_field(field: str, flag_of: Mapping[str, str]) -> str:
    """The flag of the field or of one of its parents: `spec.storage.pvc[0].path` comes from --existing-pvc."""
    while field:
        names = (field, field.partition("[")[0], f"spec.{field}")  # policies name fields without `spec`, as Run:ai's do
        if flag := next((flag_of[name] for name in names if name in flag_of), ""):
            return flag
        field = field.rpartition(".")[0]
    return ""


def _name_flags(details: str, field: str, flag_of: Mapping[str, str]) -> str:
    """The sentence with flags for the sibling fields of this one that it mentions: "no less than cpuCoreRequest"."""
    parent = field.rpartition(".")[0]

    def flag(word: re.Match[str]) -> str:
        return flag_of.get(f"{parent}.{word[0]}", word[0]).rpartition(", ")[2]

    return re.sub(r"\b[a-z]+[A-Z]\w*", flag, details)
