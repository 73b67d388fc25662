"""The rights of one user, for the REST API and other callers that ask by kind instead of by resource name.

Users may grant only rights that they have, as in the policy-based registries of kube-apiserver: the writer of a role must hold all of
its rules, or the verb `escalate` on it; the writer of a binding all rules of the role that it names, or the verb `bind` on that role.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rowlock import kinds, objects
from rowlock.authentication.users import User
from rowlock.authorization.authorizer import Attributes, Authorizer
from rowlock.authorization.policy_rules import MOST_PARTS, TooManyRules, describe_rules, quote_list, uncovered_rules
from rowlock.errors import NotFound, forbidden, not_found
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.sweeps.sweep import SweepSubmitter
from rowlock.system.unix_accounts import check_annotation_is_kept


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


_COLLECTOR_FIELDS = ("ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation")
"""Metadata that the garbage collector changes; it does not affect rights."""
_EVERYTHING: Sequence[Object] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


def escalation_review(authorizer: Authorizer, user: User, kind: Kind) -> Callable[[Object | None, Object], None] | None:
    """The check for writes of this kind by this user (`WriteOptions.review`); None if there is nothing to check."""
    if user.is_master:
        return None
    if kind is kinds.NAMESPACE:
        return check_annotation_is_kept
    if kind not in kinds.RBAC:
        return None
    check = _check_role if kind in (kinds.ROLE, kinds.CLUSTER_ROLE) else _check_binding

    def review(old: Object | None, new: Object) -> None:
        if old is None or _without_collector_fields(old) != _without_collector_fields(new):
            check(authorizer, user, kind, old, new)

    return review


def _without_collector_fields(obj: Object) -> Object:
    meta = {field: value for field, value in objects.meta(obj).items() if field not in _COLLECTOR_FIELDS}
    return {**obj, "metadata": meta}


def _check_role(authorizer: Authorizer, user: User, kind: Kind, old: Object | None, new: Object) -> None:
    """Raises Forbidden unless the user holds the role's rules or may escalate."""
    namespace, name = objects.namespace(new), objects.name(new)
    may_escalate = Attributes("escalate", kind.group, kind.plural, "", namespace, name if old is not None else "")
    if authorizer.authorize(user, may_escalate).allowed:
        return
    _check_held(authorizer, user, kind, new, new.get("rules") or ())
    aggregates = any((obj or {}).get("aggregationRule") for obj in (old, new))
    if aggregates and uncovered_rules(authorizer.rules_for(user, ""), _EVERYTHING):
        why = "must have cluster-admin privileges to use the aggregationRule"
        raise forbidden(kind.plural, name, why, kind.group)


def _check_binding(authorizer: Authorizer, user: User, kind: Kind, old: Object | None, new: Object) -> None:
    """Raises Forbidden unless the user holds the role's rules or may bind it; NotFound if the role does not exist."""
    namespace, ref = objects.namespace(new), new.get("roleRef") or {}
    plural = {"Role": "roles", "ClusterRole": "clusterroles"}.get(str(ref.get("kind")), "")
    may_bind = Attributes("bind", str(ref.get("apiGroup")), plural, "", namespace, str(ref.get("name")))
    if authorizer.authorize(user, may_bind).allowed:
        return
    try:
        rules = authorizer.role_rules(ref, namespace)
    except NotFound:
        raise not_found(kind.plural, str(ref.get("name")), kind.group) from None  # upstream's error message
    _check_held(authorizer, user, kind, new, rules)


def _check_held(authorizer: Authorizer, user: User, kind: Kind, obj: Object, rules: Sequence[Object]) -> None:
    try:
        missing = uncovered_rules(authorizer.rules_for(user, objects.namespace(obj)), rules)
    except TooManyRules:
        why = (
            f"these rules come to more single rights than can be compared with your own ({MOST_PARTS} at most): write fewer into one"
            " role, or use * for what you hold as a whole"
        )
        raise forbidden(kind.plural, objects.name(obj), why, kind.group) from None
    if missing:
        why = f'user "{user.name}" (groups={quote_list(user.groups)}) is attempting to grant RBAC permissions not currently held:'
        errors = authorizer.missing_roles(user, objects.namespace(obj))
        unresolved = " ".join(not_found(kind.plural, error.details["name"], kind.group).message for error in errors)
        tail = f"; resolution errors: [{unresolved}]" if errors else ""
        raise forbidden(kind.plural, objects.name(obj), f"{why}\n{describe_rules(missing)}{tail}", kind.group)


def may_create_runs(authorizer: Authorizer, submitter: SweepSubmitter, kind: Kind, namespace: str) -> bool:
    """Whether the submitter of a sweep may, now, create jobs of a kind in a namespace."""
    rights = UserRights(authorizer, User(submitter.user, submitter.groups))
    return submitter.is_owner or rights.allows("create", kind, namespace)
