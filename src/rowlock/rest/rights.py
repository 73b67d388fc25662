"""The rights of a caller, in Kubernetes' terms.

Rights are checked three times. A route of `routes.py` names the `Right` that it needs. The cache of an endpoint
(`VisibleCache`) holds only what its caller may read, so that names and ids cannot be guessed. The `Api` of an endpoint
(`AuthorizedApi`) checks every verb.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from msgspec import structs

from rowlock import kinds, objects
from rowlock.api import (
    DELETE,
    LOG,
    WRITE,
    Api,
    Change,
    DeleteOptions,
    LogOptions,
    Page,
    PatchType,
    WriteOptions,
)
from rowlock.errors import Forbidden
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.rest.log_streams.log_response import close_stream
from rowlock.selectors import EVERYTHING, FieldSelector, Selector

LOG_REVIEW_S = 5.0
"""Seconds after which the next piece of a log needs the right to read it again."""

Scope = Literal["everybody", "cluster", "project", "workload", "list", "body", "batch", "asset", "rule"]
"""Where a right is checked: `everybody` nowhere; `cluster` in the whole cluster; `project`, `workload`, `asset` and `rule`
for the object in the path; `list` for each entry, which is omitted without it; `body` by the endpoint, for the scope that
the body names; `batch` for each workload in the body, which alone fails without it."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right in Kubernetes' terms, such as `create pytorchjobs` in the project's namespace. `kind` None stands for the
    job's kind."""

    scope: Scope
    verb: str = ""
    kind: Kind | None = None
    subresource: str = ""


EVERYBODY = Right("everybody")


class Rights(Protocol):
    """The rights of one user."""

    @property
    def user_name(self) -> str: ...

    @property
    def user_groups(self) -> tuple[str, ...]: ...

    def allows(self, verb: str, kind: Kind, namespace: str = "", *, name: str = "", subresource: str = "") -> bool: ...

    def escalation_review(self, kind: Kind) -> Callable[[Object | None, Object], None] | None:
        """A further check for writes of this kind, so that callers grant only rights that they have; None if there is
        no further check."""
        ...

    def may_use_queue(self, queue: str) -> bool:
        """Whether the user's jobs in any namespace may use the queue."""
        ...


def require(
    rights: Rights | None, verb: str, kind: Kind, namespace: str = "", *, name: str = "", subresource: str = ""
) -> None:
    """Check a right; `rights` None is the owner, who has all. Raises Forbidden with kube-apiserver's message."""
    if rights is None or rights.allows(verb, kind, namespace, name=name, subresource=subresource):
        return
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    raise Forbidden(
        f'You do not have sufficient permissions: user "{rights.user_name}" cannot {verb} resource "{resource}" in API group'
        f' "{kind.group}" {where}.'
    )


class AuthorizedApi:
    """An `Api` with the rights of one user: every verb is checked first."""

    def __init__(self, api: Api, rights: Rights) -> None:
        self._api, self._rights = api, rights
        self.keeps_order = api.keeps_order

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        require(self._rights, "get", kind, namespace, name=name)
        return await self._api.get(kind, namespace, name)

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: Selector = EVERYTHING,
        fields: FieldSelector = FieldSelector(),
        limit: int = 0,
        token: str = "",
    ) -> Page:
        require(self._rights, "list", kind, namespace)
        return await self._api.list(kind, namespace, labels=labels, fields=fields, limit=limit, token=token)

    def watch(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        since: int | None = None,
        labels: Selector = EVERYTHING,
        fields: FieldSelector = FieldSelector(),
        bookmarks: bool = False,
    ) -> AsyncIterator[Change]:
        require(self._rights, "watch", kind, namespace)
        return self._api.watch(kind, namespace, since=since, labels=labels, fields=fields, bookmarks=bookmarks)

    async def create(self, kind: Kind, obj: Object, *, options: WriteOptions = WRITE) -> Object:
        require(self._rights, "create", kind, objects.namespace(obj))
        return await self._api.create(kind, obj, options=self._add_review(kind, options))

    async def update(self, kind: Kind, obj: Object, *, subresource: str = "", options: WriteOptions = WRITE) -> Object:
        require(self._rights, "update", kind, objects.namespace(obj), name=objects.name(obj), subresource=subresource)
        return await self._api.update(kind, obj, subresource=subresource, options=self._add_review(kind, options))

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: Any,
        *,
        type: PatchType = "merge",
        subresource: str = "",
        options: WriteOptions = WRITE,
    ) -> Object:
        require(self._rights, "patch", kind, namespace, name=name, subresource=subresource)
        if type == "apply":
            require(self._rights, "create", kind, namespace)
        options = self._add_review(kind, options)
        return await self._api.patch(kind, namespace, name, patch, type=type, subresource=subresource, options=options)

    def _add_review(self, kind: Kind, options: WriteOptions) -> WriteOptions:
        review, may_use = self._rights.escalation_review(kind), self._rights.may_use_queue
        return structs.replace(options, review=review or options.review, may_use_queue=may_use)

    async def delete(self, kind: Kind, namespace: str, name: str, *, options: DeleteOptions = DELETE) -> Object:
        require(self._rights, "delete", kind, namespace, name=name)
        return await self._api.delete(kind, namespace, name, options=options)

    async def bind(
        self, namespace: str, pod: str, node: str, *, annotations: Mapping[str, str] | None = None, uid: str = ""
    ) -> None:
        require(self._rights, "create", kinds.POD, namespace, name=pod, subresource="binding")
        await self._api.bind(namespace, pod, node, annotations=annotations, uid=uid)

    def log(self, namespace: str, pod: str, options: LogOptions = LOG) -> AsyncIterator[bytes]:
        require(self._rights, "get", kinds.POD, namespace, name=pod, subresource="log")
        return self._while_allowed(namespace, pod, self._api.log(namespace, pod, options))

    async def _while_allowed(self, namespace: str, pod: str, log: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """The log, until the right to read it is gone: it may be followed for days. Raises Forbidden."""
        checked = time.monotonic()
        try:
            async for piece in log:
                if (now := time.monotonic()) - checked >= LOG_REVIEW_S:
                    require(self._rights, "get", kinds.POD, namespace, name=pod, subresource="log")
                    checked = now
                yield piece
        finally:
            await close_stream(log)
