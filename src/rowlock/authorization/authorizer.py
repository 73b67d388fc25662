"""The interface for authorizing a request: may this user do this? As in k8s.io/apiserver/pkg/authorization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rowlock.authentication.users import User
from rowlock.errors import Forbidden, NotFound
from rowlock.objects import Object


class Attributes(NamedTuple):
    """The action to authorize. For a non-resource request `path` is set, and of the other fields only `verb` counts."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class AccessDecision(NamedTuple):
    """Whether it is allowed; `reason` names the binding that allows it, or what went wrong."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    """Decides without waiting, from the committed state."""

    def authorize(self, user: User, attributes: Attributes) -> AccessDecision: ...

    def rules_for(self, user: User, namespace: str) -> Sequence[Object]:
        """The PolicyRules that bindings give this user in the namespace, those of cluster role bindings first."""
        ...

    def missing_roles(self, user: User, namespace: str) -> Sequence[NotFound]:
        """NotFound errors for the roles that this user's bindings name and that do not exist."""
        ...

    def role_rules(self, role_ref: Object, namespace: str) -> Sequence[Object]:
        """The rules of the role that a `roleRef` names. Raises NotFound."""
        ...


def _denied_error(user: User, attributes: Attributes, reason: str = "") -> Forbidden:
    """The 403 for a denied request, in kube-apiserver's words."""
    if attributes.path:
        text = f'forbidden: User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        return Forbidden(f"{text}: {reason}" if reason else text, details={})
    verb, group, plural, subresource, namespace, name, _ = attributes
    whole = f"{plural}.{group}" if group else plural
    subject = f'{whole} "{name}"' if name else whole
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    part = f"{plural}/{subresource}" if subresource else plural
    text = (
        f'{subject} is forbidden: User "{user.name}" cannot {verb} resource "{part}" in API group "{group}" {where}'
        + (f": {reason}" if reason else "")
    )
    details: dict[str, Any] = {**({"name": name} if name else {}), **({"group": group} if group else {})}
    return Forbidden(text, details={**details, "kind": plural})


def require(authorizer: Authorizer, user: User, attributes: Attributes) -> None:
    """Raises Forbidden unless the user may do it."""
    decision = authorizer.authorize(user, attributes)
    if not decision.allowed:
        raise _denied_error(user, attributes, decision.reason)
