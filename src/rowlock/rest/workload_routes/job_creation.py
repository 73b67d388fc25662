"""A job and what belongs to it (Secret, claims, gang), written so that the same submit may come twice.

A cluster that answers 500 or 504, or whose connection breaks, may have made the object. After such an answer we look the object up: it
is ours if it carries this submit's id. A client that sends the header `Idempotency-Key` gives each of its attempts the same id: the
attempt that succeeds answers 202, whether an earlier attempt, or another replica of this server, made the job or not.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress

from rowlock import kinds, objects, submit_fields
from rowlock.api import WriteOptions
from rowlock.errors import AlreadyExists, ApiError, BadRequest, NotFound
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.call import RestCall
from rowlock.rest.informers import InformerCache
from rowlock.rest.workload_routes.gang_objects import create_gang
from rowlock.workloads.objects import WORKLOAD_ID
from rowlock.workloads.projects import Project
from rowlock.workloads.submission import Submission

MAX_KEY_LENGTH = 255
_SUBMITS = uuid.UUID("6f2b8f5e-6a0c-4d0b-9a55-0d6a1f0c7b1e")
"""The namespace of ids that are made of keys (RFC 4122, version 5)."""
_OPTIONS = WriteOptions(manager="rowlock")


def submit_identity(call: RestCall, project: Project, request: Submission) -> str:
    """The id of the workload: a new one, or with a key the same for each try of one user. Raises BadRequest."""
    key = call.request.headers.get(submit_fields.KEY_HEADER, "")
    if not key:
        return call.context.new_id()
    if len(key) > MAX_KEY_LENGTH:
        raise BadRequest(f"the header Idempotency-Key has {len(key)} characters; the limit is {MAX_KEY_LENGTH}")
    words = (call.user, project.namespace, request.framework.kind.plural, request.name, key)
    return str(uuid.uuid5(_SUBMITS, "\n".join(words)))


def find_earlier_try(cache: InformerCache, job: Object) -> Object | None:
    """The job that an earlier try of this submit made, as far as the cache knows; one that is being deleted is none."""
    named = cache.jobs_named(objects.namespace(job), objects.name(job))
    return next((one for one in named if _is_of_this_submit(one, job) and not objects.is_deleting(one)), None)


def _is_of_this_submit(existing: Object, wanted: Object) -> bool:
    """Whether both have one submit's id."""
    return objects.labels(existing).get(WORKLOAD_ID) == objects.labels(wanted)[WORKLOAD_ID]


async def ensure_claims_are_free(call: RestCall, claims: Sequence[Object]) -> None:
    """Raises AlreadyExists when a new claim has the name of an existing one, before anything is created. A claim of an earlier
    try is none."""
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


async def create_job(
    call: RestCall,
    job: Object,
    secrets: Sequence[Object],
    claims: Sequence[tuple[Object, bool]],
    *,
    options: WriteOptions = _OPTIONS,
    has_gang: bool = True,
) -> Object:
    """The job, once it and what belongs to it are there: before it the Secrets of its own, which pods need at once; then its
    new claims (True: the job owns it) and its gang. What is refused leaves nothing behind, but for a job of an earlier try.
    `options` are the job's; `has_gang`: whether it gets a gang where its scheduler needs one. Raises ApiError."""
    earlier = find_earlier_try(call.context.cache, job)
    if earlier is None:
        created, is_new = await _create_with_secrets(call, job, secrets, options)
    else:
        created, is_new = earlier, False
        with suppress(NotFound):  # that try came further
            await _pass_to_job(call, secrets, earlier)
    try:
        await _create_claims(call, created, claims)
        if has_gang:
            await create_gang(call, created, may_exist=not is_new)
    except ApiError:
        if is_new:
            with suppress(ApiError):  # what was refused is the answer, and not that this was refused, too
                await call.context.api.delete(_kind(created), objects.namespace(created), objects.name(created))
        raise
    return created


async def _create_with_secrets(
    call: RestCall, job: Object, secrets: Sequence[Object], options: WriteOptions
) -> tuple[Object, bool]:
    """The job owns its Secrets."""
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
    """The job owns these Secrets, and takes them along when it goes."""
    owner = {"metadata": {"ownerReferences": [objects.owner_reference(job)]}}
    for secret in secrets:
        await call.context.api.patch(
            kinds.SECRET, objects.namespace(secret), objects.name(secret), owner, options=_OPTIONS
        )


async def _create_or_find(call: RestCall, wanted: Object, options: WriteOptions = _OPTIONS) -> tuple[Object, bool]:
    """The object, and whether this call made it: where the answer was lost, or the name is taken, what is there counts if it is of
    this submit. Raises ApiError."""
    api, kind = call.context.api, _kind(wanted)
    try:
        return await api.create(kind, wanted, options=options), True
    except ApiError as error:
        if error.code < 500 and not isinstance(error, AlreadyExists):
            raise
        try:
            found = await api.get(kind, objects.namespace(wanted), objects.name(wanted))
        except ApiError:
            raise error from None  # nobody knows: the caller is told what went wrong, and may try again
        if not _is_of_this_submit(found, wanted):
            raise
        return found, False


async def _create_claims(call: RestCall, job: Object, claims: Sequence[tuple[Object, bool]]) -> None:
    """Create the job's new claims, which its pods wait for. The job owns ephemeral ones. A refused claim takes the others back."""
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


def _kind(obj: Object) -> Kind:
    return kinds.by_object(obj)
