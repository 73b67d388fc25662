"""The rights of one user as the other faces of the cluster ask for them: by kind, not by words."""

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
    """Asks the authorizer anew each time: what is taken away counts for a request that has begun, too."""

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
        """Users grant only rights that they have, through every API."""
        return escalation_review(self.authorizer, self.user, kind)

    def may_use_queue(self, queue: str) -> bool:
        """Whether jobs of any namespace may use it: by the verb `use`, or by the right to change the queue itself."""
        return any(self.allows(verb, kinds.QUEUE, name=queue) for verb in ("use", "update"))
