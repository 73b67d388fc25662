"""The rights of one user as the other faces of the cluster ask for them: by kind, not by words."""

from __future__ import annotations

from dataclasses import dataclass

from rowlock.apiserver.http.authorizer import Attributes, Authorizer
from rowlock.apiserver.http.users import User
from rowlock.kinds import Kind


@dataclass(frozen=True, slots=True)
class UserRights:
    """Asks the authorizer anew each time: what is taken away counts for a request that has begun, too."""

    authorizer: Authorizer
    user: User

    @property
    def user_name(self) -> str:
        return self.user.name

    def allows(self, verb: str, kind: Kind, namespace: str = "", *, name: str = "", subresource: str = "") -> bool:
        attributes = Attributes(verb, kind.group, kind.plural, subresource, namespace, name)
        return self.authorizer.authorize(self.user, attributes).allowed
