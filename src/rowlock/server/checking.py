"""`rowlock check`: what would become of manifests, without writing anything: refused by whom, and what surprises."""

from __future__ import annotations

from typing import Any

from rowlock import kinds, objects
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, ApiError
from rowlock.objects import Object
from rowlock.server.call import Call
from rowlock.server.scheduler import asked, home
from rowlock.training import advice
from rowlock.training.defaults import read
from rowlock.training.registry import FRAMEWORKS
from rowlock.workloads.fields import nearest


async def check(call: Call) -> Any:
    """`{"objects": [...], "project": NAME}` → for each object the refusal ("" = admitted), a hint, and remarks."""
    call.only()
    body = await call.json()
    wanted, space = asked(body), home(call, body)
    return {"results": [await _checked(call, obj, space) for obj in wanted]}


async def _checked(call: Call, obj: Object, space: str) -> dict[str, Any]:
    word = str(obj.get("kind", ""))
    found: dict[str, Any] = {"kind": word, "name": objects.name(obj), "refused": "", "hint": "", "remarks": []}
    kind = kinds.by_api_version(str(obj.get("apiVersion", "")), word)
    if kind is None or kind.api_version != obj.get("apiVersion"):
        known = [k.name for k in kinds.KINDS]
        refused = f'no matches for kind "{word}" in version "{obj.get("apiVersion", "")}"'
        near = f"It is served as `{kind.api_version}`." if kind else nearest(word, known).strip()
        return {**found, "refused": refused, "hint": near or "rowlock serves no such kind."}
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        return {**found, "refused": f"{word}: metadata with a name is missing"}
    placed = {**obj, "metadata": {**meta, "namespace": meta.get("namespace") or space}}
    refused = await _refusal(call, kind, placed)
    if kind in kinds.JOBS and not refused:
        refused = advice.late_refusal(kind, placed)
        found["remarks"] = [] if refused else advice.remarks(kind, placed)
    if not refused and call.room.lacks is not None:
        lacking = [text for pod in _pods(kind, placed) for text in await call.room.lacks(pod)]
        found["remarks"] += list(dict.fromkeys(lacking))
    return {**found, "refused": refused, "hint": advice.hint(refused) if refused else ""}


def _pods(kind: kinds.Kind, obj: Object) -> list[Object]:
    """What runs of it: itself, or a pod of each type."""
    if kind is kinds.POD:
        return [obj]
    replicas = read(FRAMEWORKS[kind], obj).replicas.values() if kind in FRAMEWORKS else ()
    return [replica.template for replica in replicas]


async def _refusal(call: Call, kind: kinds.Kind, obj: Object) -> str:
    try:
        await call.room.api.create(kind, obj, options=WriteOptions(dry_run=True, validation="Strict"))
    except AlreadyExists:
        return ""  # it is there: checked when it was made
    except ApiError as error:
        return error.message
    return ""
