"""PATCH /runs/{id}: tags, a note and the favourite of a run, also of one that is gone."""

from __future__ import annotations

from collections.abc import Mapping

from rowlock import kinds, objects
from rowlock.answers import workloads as answers
from rowlock.archive import database
from rowlock.archive.shared_archive import SharedArchive
from rowlock.errors import NotFound, Unavailable
from rowlock.rest.call import RestCall
from rowlock.rest.run_history.past_workloads import ask_archive, catch_up, find_past
from rowlock.rest.run_history.runs import header_json, require_archive, require_run
from rowlock.workloads.body_fields import BodyErrors, Fields
from rowlock.workloads.run_options.marks import Marks, marks_from_json, marks_of, parse_marks

_MAX_BODY = 64 * 1024


async def change(call: RestCall) -> answers.RunHeader:
    """PATCH /runs/{id}: fields that are absent stay as they are. Those of a job that is there are its annotations; of one that is gone they
    are in the archive. Raises BadRequest, NotFound, Forbidden, Unavailable."""
    call.validate_query()
    identity = str(call.path["id"])
    job = call.context.cache.job(call.context.cache.job_uid(identity))
    if job is not None:
        call.require_right(kinds.by_object(job), *objects.key(job))
        marks = await _read_body(call, marks_of(job))
        patch = {"metadata": {"uid": objects.uid(job), "annotations": marks.annotations()}}
        await call.context.api.patch(kinds.by_object(job), *objects.key(job), patch, type="merge")
    else:
        await _change_gone(call, identity)
    run = await require_run(call, identity)
    found = await ask_archive(call, database.read_marks, [run.record.uid]) or {}
    return header_json(run.record, marks_from_json(found.get(run.record.uid, {})))


async def _read_body(call: RestCall, before: Marks) -> Marks:
    body, errors = await call.json(_MAX_BODY), BodyErrors()
    top = Fields("", body if isinstance(body, Mapping) else {}, errors)
    if not isinstance(body, Mapping):
        errors.add("body", "type", "must be a JSON object.")
    top.allow_only("tags", "note", "favourite")
    marks = parse_marks(top, before)
    errors.raise_if_any()
    return marks


async def _change_gone(call: RestCall, identity: str) -> None:
    archive = require_archive(call)
    run = await find_past(call, identity)
    if run is None:
        raise NotFound(f"there is no run {identity!r} in the archive. GET /api/v1/runs lists them.")
    uid = run.record.uid
    kept = await ask_archive(call, database.read_marks, [uid]) or {}
    marks = await _read_body(call, marks_from_json(kept.get(uid, {})))
    if isinstance(archive, SharedArchive) and not archive.is_leading:
        raise Unavailable("this server does not write the archive now, and the job is gone: ask the one that leads")
    archive.put(f"mark/{uid}", database.put_marks(uid, marks._asdict()))
    if not await archive.settle():
        raise Unavailable(f"the archive is not written now: {archive.problem or 'its disk is slow'}")
    await catch_up(call)
