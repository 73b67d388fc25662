"""RBAC: bindings give the rules of roles to users, groups and service accounts, in one namespace or in all.

The index holds every binding under each of its subjects, and every role compiled; the store reports each change as it commits. So a
decision looks only at the user's own bindings. Decisions are cached until rights change. As in plugin/pkg/auth/authorizer/rbac;
`system:masters` may do everything regardless of bindings, as upstream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from rowlock import kinds, objects
from rowlock.api import Change
from rowlock.authentication.users import User
from rowlock.authorization.authorizer import AccessDecision, Attributes
from rowlock.authorization.policy_rules import RuleIndex
from rowlock.errors import NotFound, not_found
from rowlock.kinds import Kind
from rowlock.objects import Key, Object

_REMEMBERED_DECISIONS = 16_384
"""Most decisions cached; then the cache is cleared (each takes some hundred bytes, and microseconds to compute again)."""
_ALLOWED = AccessDecision(True)
_ROLE_KINDS = {"Role": kinds.ROLE, "ClusterRole": kinds.CLUSTER_ROLE}

Subject = tuple[str, str]
"""`User` or `Group`, and its name; a service account counts as the user that it authenticates as."""


class _Binding(NamedTuple):
    """A binding, as stored in the index."""

    kind: Kind
    key: Key
    role: tuple[Kind, Key] | None
    """None if it does not refer to a role that it may refer to."""
    role_ref: Object
    subjects: dict[Subject, str]
    """Subject → its description in a decision."""


class RbacSource(Protocol):
    """Provides the RBAC objects and reports changes: a store's committed state, or a watch cache of another cluster."""

    def all(self, kind: Kind) -> Iterable[Object]: ...

    def observe(self, kinds: Iterable[Kind], observer: Callable[[Change], None]) -> None: ...


class RbacAuthorizer:
    """An `Authorizer` over the RBAC objects of a source, kept up to date by its changes."""

    def __init__(self, state: RbacSource) -> None:
        self._roles: dict[tuple[Kind, Key], tuple[Sequence[Object], RuleIndex]] = {}
        self._bindings: dict[tuple[Kind, Key], _Binding] = {}
        self._by_subject: dict[Subject, dict[str, dict[tuple[Kind, Key], _Binding]]] = {}
        """Subject → namespace ("" = the cluster) → its bindings."""
        self._decisions: dict[tuple[str, tuple[str, ...], Attributes], AccessDecision] = {}
        self.version = 0
        """Incremented at every change of RBAC objects."""
        for kind in kinds.RBAC:
            for obj in state.all(kind):
                self._store_object(kind, objects.key(obj), obj)
        state.observe(kinds.RBAC, self._apply_change)

    # ------------------------------------------------------------ decisions

    def authorize(self, user: User, attributes: Attributes) -> AccessDecision:
        """Whether any binding allows it."""
        if user.is_master:
            return _ALLOWED
        question = (user.name, user.groups, attributes)
        decision = self._decisions.get(question)
        if decision is None:
            if len(self._decisions) >= _REMEMBERED_DECISIONS:
                self._decisions.clear()
            decision = self._decisions[question] = self._decide(user, attributes)
        return decision

    def _decide(self, user: User, attributes: Attributes) -> AccessDecision:
        for binding, subject in self._bindings_of(user, attributes.namespace):
            rules = self._roles.get(binding.role) if binding.role else None
            if rules is not None and rules[1].allows(attributes):
                return AccessDecision(True, f"RBAC: allowed by {_describe_binding(binding)} to {subject}")
        missing = [error.message for error in self.missing_roles(user, attributes.namespace)]
        if not missing:
            return AccessDecision(False)
        return AccessDecision(False, "RBAC: " + (missing[0] if len(missing) == 1 else f"[{', '.join(missing)}]"))

    def has_bindings(self, user_name: str) -> bool:
        """Whether any binding names this user or service account."""
        return ("User", user_name) in self._by_subject

    def missing_roles(self, user: User, namespace: str) -> Sequence[NotFound]:
        """NotFound errors for the roles that this user's bindings name and that do not exist, each once."""
        bindings = [binding for binding, _ in self._bindings_of(user, namespace) if binding.role not in self._roles]
        return list({error.message: error for error in map(_missing_role, bindings)}.values())

    def rules_for(self, user: User, namespace: str) -> Sequence[Object]:
        """The rules of all bindings of a user, unmerged, those of cluster role bindings first."""
        found: list[Object] = []
        for binding, _ in self._bindings_of(user, namespace):
            found += self._roles[binding.role][0] if binding.role in self._roles else ()
        return found

    def role_rules(self, role_ref: Object, namespace: str) -> Sequence[Object]:
        """The rules of the role that a `roleRef` names, a Role in this namespace. Raises NotFound."""
        kind = _ROLE_KINDS.get(str(role_ref.get("kind")))
        if kind is None:
            raise NotFound(f'unsupported role reference kind: "{role_ref.get("kind")}"')
        name = str(role_ref.get("name"))
        role = self._roles.get((kind, Key(namespace if kind.namespaced else "", name)))
        if role is None:
            raise not_found(kind.singular, name, kind.group)
        return role[0]

    def _bindings_of(self, user: User, namespace: str) -> Iterator[tuple[_Binding, str]]:
        """The user's bindings, each with the description of the subject that matched."""
        subjects = (("User", user.name), *(("Group", group) for group in user.groups))
        entries = [(subject, spaces) for subject in subjects if (spaces := self._by_subject.get(subject))]
        for space in ("", namespace) if namespace else ("",):
            for subject, spaces in entries:
                for binding in spaces.get(space, {}).values():
                    yield binding, binding.subjects[subject]

    # ------------------------------------------------------------ the index

    def _apply_change(self, change: Change) -> None:
        kind, key = change.kind, objects.key(change.object)
        assert kind is not None  # a change of an observed kind
        if change.type == "Deleted":
            self._drop_object(kind, key)
        else:
            self._store_object(kind, key, change.object)
        self._decisions.clear()
        self.version += 1

    def _store_object(self, kind: Kind, key: Key, obj: Object) -> None:
        self._drop_object(kind, key)
        if kind in (kinds.ROLE, kinds.CLUSTER_ROLE):
            rules = tuple(obj.get("rules") or ())
            self._roles[(kind, key)] = rules, RuleIndex(rules)
            return
        binding = self._bindings[(kind, key)] = _read_binding(kind, key, obj)
        for subject in binding.subjects:
            self._by_subject.setdefault(subject, {}).setdefault(key.namespace, {})[(kind, key)] = binding

    def _drop_object(self, kind: Kind, key: Key) -> None:
        self._roles.pop((kind, key), None)
        binding = self._bindings.pop((kind, key), None)
        for subject in binding.subjects if binding else ():
            spaces = self._by_subject[subject]
            del spaces[key.namespace][(kind, key)]
            if not spaces[key.namespace]:
                del spaces[key.namespace]
            if not spaces:
                del self._by_subject[subject]


def _read_binding(kind: Kind, key: Key, obj: Object) -> _Binding:
    ref = obj.get("roleRef") or {}
    role_kind = _ROLE_KINDS.get(str(ref.get("kind")))
    if role_kind is kinds.ROLE and kind is kinds.CLUSTER_ROLE_BINDING:
        role_kind = None  # a cluster role binding has no namespace to find a Role in
    role = (role_kind, Key(key.namespace if role_kind.namespaced else "", str(ref.get("name")))) if role_kind else None
    subjects: dict[Subject, str] = {}
    for entry in obj.get("subjects") or ():
        name, subject_kind = str(entry.get("name")), str(entry.get("kind"))
        if subject_kind in ("User", "Group"):
            subjects[(subject_kind, name)] = f'{subject_kind} "{name}"'
        elif subject_kind == "ServiceAccount" and (space := entry.get("namespace") or key.namespace):
            subjects[("User", f"system:serviceaccount:{space}:{name}")] = f'ServiceAccount "{name}/{space}"'
    return _Binding(kind, key, role, ref, subjects)


def _describe_binding(binding: _Binding) -> str:
    name = "/".join(filter(None, (binding.key.name, binding.key.namespace)))
    return f'{binding.kind.name} "{name}" of {binding.role_ref.get("kind")} "{binding.role_ref.get("name")}"'


def _missing_role(binding: _Binding) -> NotFound:
    kind = _ROLE_KINDS.get(str(binding.role_ref.get("kind")), kinds.ROLE)
    return not_found(kind.singular, str(binding.role_ref.get("name")), kind.group)
