"""Creates a job and what belongs to it (Secrets, claims, gang), so that a submit may be repeated.

A cluster that answers 500 or 504, or whose connection breaks, may have created the object. After such an answer the object is looked up:
it is ours if it has this submit's id. The header `Idempotency-Key` gives all attempts of a client the same id, so that a repeated submit
answers 202 even if an earlier attempt, or another replica of this server, created the job.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress

from rowlock import kinds, objects, submit_fields
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, ApiError, BadRequest, NotFound
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.informers import InformerCache
from rowlock.rest.workload_routes.gang_objects import create_gang
from rowlock.workloads.objects import WORKLOAD_ID, SubmitPlan
from rowlock.workloads.projects import Project

MAX_KEY_LENGTH = 255
_SUBMITS = uuid.UUID("6f2b8f5e-6a0c-4d0b-9a55-0d6a1f0c7b1e")
"""The UUID namespace of ids derived from keys (RFC 4122, version 5)."""
_OPTIONS = WriteOptions(manager="rowlock")


def submit_identity(call: RestCall, project: Project, plural: str, name: str) -> str:
    """The id of what is created (`plural`, `name`): random, or with a key the same for every attempt of this user. Raises BadRequest."""
    key = call.request.headers.get(submit_fields.KEY_HEADER, "")
    if not key:
        return call.context.new_id()
    if len(key) > MAX_KEY_LENGTH:
        raise BadRequest(f"the header Idempotency-Key has {len(key)} characters; the limit is {MAX_KEY_LENGTH}")
    words = (call.user, project.namespace, plural, name, key)
    return str(uuid.uuid5(_SUBMITS, "\n".join(words)))


def find_earlier_try(cache: InformerCache, job: Object) -> Object | None:
    """The job that an earlier attempt of this submit created, if the cache has it and it is not being deleted."""
    named = cache.jobs_named(objects.namespace(job), objects.name(job))
    return next((one for one in named if _is_of_this_submit(one, job) and not objects.is_deleting(one)), None)


def _is_of_this_submit(existing: Object, wanted: Object) -> bool:
    """Whether both objects have the same submit's id."""
    return objects.labels(existing).get(WORKLOAD_ID) == objects.labels(wanted)[WORKLOAD_ID]


async def ensure_claims_are_free(call: RestCall, claims: Sequence[Object]) -> None:
    """Raises AlreadyExists if a new claim has the name of an existing one, before anything is created. A claim created by an earlier
    attempt of this submit does not count."""
    for claim in claims:
        try:
            found = await call.context.api.get(
                kinds.PERSISTENT_VOLUME_CLAIM, objects.namespace(claim), objects.name(claim)
            )
        except NotFound:
            continue
        if _is_of_this_submit(found, claim):
            continue
        raise AlreadyExists(
            f"the claim {objects.name(claim)} already exists: use it with --existing-pvc claimname={objects.name(claim)},path=DIR,"
            " or choose another name"
        )


async def create_planned(
    call: RestCall, plan: SubmitPlan, *, options: WriteOptions = _OPTIONS, has_gang: bool = True
) -> Object:
    """Create a job and what belongs to it, in the plan's order, then its gang. A refused submit leaves nothing behind, except a job
    created by an earlier attempt. `options` are for the job; `has_gang`: create a gang if the scheduler needs one. Raises ApiError."""
    job, secrets, claims = plan.job, plan.secrets, plan.claims
    earlier = find_earlier_try(call.context.cache, job)
    if earlier is None:
        created, is_new = await _create_with_secrets(call, job, secrets, options)
    else:
        created, is_new = earlier, False
        with suppress(NotFound):  # the earlier attempt may have completed this step
            await _pass_to_job(call, secrets, earlier)
    try:
        await _create_claims(call, created, claims)
        if has_gang:
            await create_gang(call, created, may_exist=not is_new)
    except ApiError:
        if is_new:
            with suppress(ApiError):  # report the first error, not this one
                await call.context.api.delete(
                    kinds.by_object(created), objects.namespace(created), objects.name(created)
                )
        raise
    return created


async def _create_with_secrets(
    call: RestCall, job: Object, secrets: Sequence[Object], options: WriteOptions
) -> tuple[Object, bool]:
    """Create the Secrets, then the job, and make it their owner. Returns the job, and whether this call created it."""
    api, namespace, names = call.context.api, objects.namespace(job), list[str]()
    try:
        for secret in secrets:
            names.append(objects.name((await _create_or_find(call, secret))[0]))
        created, is_new = await _create_or_find(call, job, options)
    except BaseException:
        for name in names:
            with suppress(ApiError):
                await api.delete(kinds.SECRET, namespace, name)
        raise
    await _pass_to_job(call, secrets, created)
    return created, is_new


async def _pass_to_job(call: RestCall, secrets: Sequence[Object], job: Object) -> None:
    """Make the job the owner of these Secrets, so that they are deleted with it."""
    owner = {"metadata": {"ownerReferences": [objects.owner_reference(job)]}}
    for secret in secrets:
        await call.context.api.patch(
            kinds.SECRET, objects.namespace(secret), objects.name(secret), owner, options=_OPTIONS
        )


async def _create_or_find(call: RestCall, wanted: Object, options: WriteOptions = _OPTIONS) -> tuple[Object, bool]:
    """Create the object. If the answer was lost or the name is taken, an existing object of this submit is accepted. Returns the
    object, and whether this call created it. Raises ApiError."""
    api, kind = call.context.api, kinds.by_object(wanted)
    try:
        return await api.create(kind, wanted, options=options), True
    except ApiError as error:
        if error.code < 500 and not isinstance(error, AlreadyExists):
            raise
        try:
            found = await api.get(kind, objects.namespace(wanted), objects.name(wanted))
        except ApiError:
            raise error from None  # unknown state: report the first error; the caller may retry
        if not _is_of_this_submit(found, wanted):
            raise
        return found, False


async def _create_claims(call: RestCall, job: Object, claims: Sequence[tuple[Object, bool]]) -> None:
    """Create the job's new claims, which its pods wait for. The job owns ephemeral ones. If one is refused, the others are deleted."""
    made: list[Object] = []
    try:
        for claim, is_ephemeral in claims:
            owner = {"ownerReferences": [objects.owner_reference(job)]} if is_ephemeral else {}
            owned = {**claim, "metadata": {**claim["metadata"], **owner}}
            found, is_new = await _create_or_find(call, owned)
            made += [found] if is_new else []
    except ApiError:
        for claim in made:
            with suppress(ApiError):
                await call.context.api.delete(
                    kinds.PERSISTENT_VOLUME_CLAIM, objects.namespace(claim), objects.name(claim)
                )
        raise
