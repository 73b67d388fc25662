"""Draining: a server that is about to stop with its jobs refuses new ones, as a drained node takes no pods."""

from __future__ import annotations

from typing import Any

from rowlock.errors import BadRequest, Unsupported
from rowlock.rest.call import JsonResult, RestCall
from rowlock.rest.workloads import ACCEPTED

MAX_DRAIN_S = 3_600
_FOREIGN = "this server cannot be drained: its cluster is somebody else's"


async def list_ending_pods(call: RestCall) -> Any:
    """GET /drain/pods: the pods that end without a further request, because they are terminating or their owner is gone. Their programs would
    outlive a server that is stopped now. Raises Unsupported."""
    call.validate_query()
    if call.context.drain is None:
        raise Unsupported(_FOREIGN)
    return {"endingPods": call.context.drain.ending_pods()}


async def drain(call: RestCall) -> Any:
    """POST /drain: refuse new jobs for `seconds` (1 to 3,600), the longest time that `rowlock down` needs. Raises BadRequest, Unsupported."""
    text = call.validate_query("seconds").get("seconds", "")
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= MAX_DRAIN_S):
        raise BadRequest(f"seconds must be a whole number from 1 to {MAX_DRAIN_S}")
    if call.context.drain is None:
        raise Unsupported(_FOREIGN)
    call.context.drain.begin(float(text))
    return JsonResult(202, ACCEPTED)
