"""Quotas of projects and departments, which are stored in their Queues: parse them from a body, and write them."""

from __future__ import annotations

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.rest.call import RestCall
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.inventory.quotas import DEFAULT_RANK, RANKS, Quota, parse_resources

_OPTIONS = WriteOptions(manager="rowlock")


async def parse_resources_body(call: RestCall) -> tuple[Quota, frozenset[str]]:
    """Parse a body that is the list of resources. Returns the quota and the names of the given fields: all for a PUT, for a
    PATCH those of the body. Raises BadRequest with one cause per mistake."""
    call.validate_query()
    errors = BodyErrors()
    body = await call.json()
    top = Fields("", {"resources": body}, errors)
    if not body:
        top.add_error("resources", "required", "the body is the list of resources, with one item.")
    quota = parse_resources(top)
    errors.raise_if_any()
    if call.request.method == "PUT":
        return quota, EVERYTHING_GIVEN
    return quota, frozenset(name for name, value in body[0].items() if value is not None) & EVERYTHING_GIVEN


EVERYTHING_GIVEN = frozenset({"gpu", "cpu", "memory", "priority"})


async def set_queue_quota(call: RestCall, queue: str, quota: Quota, given: frozenset[str] = EVERYTHING_GIVEN) -> None:
    """Write the given fields of the quota to the Queue. Raises NotFound when the Queue is gone."""
    amounts = quota.queue_fields()["resources"]
    spec: dict[str, object] = {"resources": {name: amounts[name] for name in sorted(given - {"priority"})}}
    if "priority" in given:
        spec["priority"] = None if quota.rank == RANKS[DEFAULT_RANK] else quota.rank  # null removes an earlier rank
    await call.context.api.patch(kinds.QUEUE, "", queue, {"spec": spec}, type="merge", options=_OPTIONS)


async def priorities(call: RestCall) -> dict[str, object]:
    """GET /org-unit/priorities: the ranks that projects and departments may have."""
    call.validate_query()
    entries = [{"name": name, "value": value, "isDefault": name == DEFAULT_RANK} for name, value in RANKS.items()]
    return {"priorities": entries}
