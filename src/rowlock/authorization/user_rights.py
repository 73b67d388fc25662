"""The rights of one user, for the REST API and other callers that ask by kind instead of by resource name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rowlock import kinds
from rowlock.authentication.users import User
from rowlock.authorization.authorizer import Attributes, Authorizer
from rowlock.authorization.escalation import escalation_review
from rowlock.kinds import Kind
from rowlock.objects import Object


@dataclass(frozen=True, slots=True)
class UserRights:
    """Asks the authorizer on every call, so that a revoked right is gone even for a request in progress."""

    authorizer: Authorizer
    user: User

    @property
    def user_name(self) -> str:
        return self.user.name

    @property
    def user_groups(self) -> tuple[str, ...]:
        return self.user.groups

    def allows(self, verb: str, kind: Kind, namespace: str = "", *, name: str = "", subresource: str = "") -> bool:
        attributes = Attributes(verb, kind.group, kind.plural, subresource, namespace, name)
        return self.authorizer.authorize(self.user, attributes).allowed

    def escalation_review(self, kind: Kind) -> Callable[[Object | None, Object], None] | None:
        """The check that the user grants only rights that they have; None if there is nothing to check."""
        return escalation_review(self.authorizer, self.user, kind)

    def may_use_queue(self, queue: str) -> bool:
        """Whether the user's jobs may use the queue: with the verb `use`, or with `update` on the queue."""
        return any(self.allows(verb, kinds.QUEUE, name=queue) for verb in ("use", "update"))
