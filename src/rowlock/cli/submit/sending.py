"""Sends a submit and retries it when the answer is lost; the server recognizes a retry by its `Idempotency-Key`."""

from __future__ import annotations

import time
from typing import Any

from rowlock import submit_fields
from rowlock.cli import client
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
