"""Run:ai's roles and access rules on top of Kubernetes' RBAC: an access rule is one subject of one binding. Pure.

A RoleBinding in a project's namespace is a rule for that project, a ClusterRoleBinding one for all projects. There is no other store:
`kubectl create rolebinding` creates a rule, and deleting a rule changes the binding.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rowlock import kinds, objects
from rowlock.errors import BadRequest
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.workloads.accounts import applications
from rowlock.workloads.body_fields import did_you_mean

RULE_LABEL = "rowlock.dev/access-rule"
_BOOTSTRAP_LABEL = "kubernetes.io/bootstrapping"


class Role(NamedTuple):
    """A role for access rules. `id` is Run:ai's number, `cluster_role` Kubernetes' name, `aliases` are other accepted names."""

    id: int
    name: str
    cluster_role: str
    description: str
    aliases: tuple[str, ...] = ()


ROLES: tuple[Role, ...] = (
    Role(1, "system-admin", "cluster-admin", "Everything, users and their passwords too.", ("cluster-admin",)),
    Role(2, "admin", "rowlock:admin", "What an editor may, and the project's Secrets, roles and access rules; for all projects: projects, departments, node pools.",
         ("department_admin", "research_manager")),
    Role(3, "editor", "rowlock:editor", "Submits, changes and deletes workloads and their assets, reads logs, runs commands in pods.",
         ("researcher", "l1 researcher", "l2 researcher", "ml_engineer")),
    Role(4, "viewer", "rowlock:viewer", "Reads all but Secrets."),
)  # fmt: skip
_BY_CLUSTER_ROLE = {role.cluster_role: role for role in ROLES}
_WORDS = {word: role for role in ROLES for word in (role.name, role.cluster_role, str(role.id), *role.aliases)}


def find_role(wanted: object) -> Role:
    """The role with this number, name or ClusterRole. Raises BadRequest with the nearest name."""
    role = _WORDS.get(str(wanted).lower())
    if role is None:
        names = [one.name for one in ROLES]
        raise BadRequest(
            f"there is no role {str(wanted)[:60]!r}: there are {', '.join(names)}.{did_you_mean(str(wanted)[:60], names)}"
        )
    return role


def _role_of(binding: Object) -> Role:
    """The role of a binding. A custom role keeps its own name, and gets a number derived from it."""
    reference = binding.get("roleRef") or {}
    name = str(reference.get("name") or "")
    known = _BY_CLUSTER_ROLE.get(name) if reference.get("kind") == "ClusterRole" else None
    return known or Role(1_000 + zlib.crc32(f"{reference.get('kind')}/{name}".encode()) % 1_000_000_000, name, name, "")


def role_json(role: Role, created: str) -> dict[str, Any]:
    """Run:ai's JSON of a role; `created` is an RFC 3339 time."""
    return {
        "id": role.id, "name": role.name, "description": role.description, "enabled": True, "effectiveEnabled": True,
        "custom": False, "createdAt": created, "updatedAt": created, "deletedAt": None, "createdBy": "rowlock",
        "permissions": [], "clusterRole": role.cluster_role,
    }  # fmt: skip


# ---------------------------------------------------------------- subjects

_SUBJECT_TYPES = ("user", "app", "group", "service-account")


class RuleSubject(NamedTuple):
    """The subject of a rule. `id` is its name in Run:ai's API; that of a service account is `NAMESPACE:NAME`."""

    type: str
    id: str


def parse_subject(subject_type: object, subject_id: object) -> RuleSubject:
    """The subject in a request. Raises BadRequest."""
    if subject_type not in _SUBJECT_TYPES:
        raise BadRequest(f"subjectType must be one of {', '.join(_SUBJECT_TYPES)}, not {str(subject_type)[:60]!r}")
    if not isinstance(subject_id, str) or not subject_id or len(subject_id) > 253 or not subject_id.isprintable():
        raise BadRequest("subjectId must be the name of whom the rule is for")
    if subject_type in ("user", "group") and subject_id.startswith("system:"):
        raise BadRequest(f"{subject_id[:60]!r} is a name of Kubernetes' own: `kubectl create rolebinding` binds it")
    if subject_type == "service-account" and len([*filter(None, subject_id.split(":"))]) != 2:
        raise BadRequest("a service account is NAMESPACE:NAME")
    return RuleSubject(str(subject_type), subject_id.removeprefix(applications.USER_PREFIX))


def _to_kubernetes(subject: RuleSubject) -> Object:
    if subject.type == "service-account":
        namespace, name = subject.id.split(":")
        return {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    name = applications.USER_PREFIX + subject.id if subject.type == "app" else subject.id
    return {"kind": "Group" if subject.type == "group" else "User", "apiGroup": kinds.ROLE.group, "name": name}


def _from_kubernetes(entry: Object, namespace: str) -> RuleSubject:
    name, kind = str(entry.get("name") or ""), entry.get("kind")
    if kind == "ServiceAccount":
        return RuleSubject("service-account", f"{entry.get('namespace') or namespace}:{name}")
    if kind == "User" and name.startswith(applications.USER_PREFIX):
        return RuleSubject("app", name.removeprefix(applications.USER_PREFIX))
    return RuleSubject("group" if kind == "Group" else "user", name)


# ---------------------------------------------------------------- rules


class AccessRule(NamedTuple):
    """One subject of one binding. `namespace` "" is all projects."""

    id: int
    subject: RuleSubject
    role: Role
    namespace: str
    binding: Object
    position: int
    """Index of the subject in the binding."""

    @property
    def kind(self) -> Kind:
        return kinds.ROLE_BINDING if self.namespace else kinds.CLUSTER_ROLE_BINDING


def rules_of(bindings: Iterable[Object]) -> Iterator[AccessRule]:
    """The rules of bindings, without the cluster's initial bindings."""
    for binding in bindings:
        if _BOOTSTRAP_LABEL in objects.labels(binding) or objects.name(binding).startswith("system:"):
            continue
        namespace = objects.namespace(binding)
        for index, entry in enumerate(binding.get("subjects") or ()):
            subject = _from_kubernetes(entry, namespace)
            digest = hashlib.sha256("\0".join((objects.uid(binding), *subject)).encode()).digest()
            number = int.from_bytes(digest[:6], "big")  # 48 bits: exact in JavaScript too
            yield AccessRule(number, subject, _role_of(binding), namespace, binding, index)


def to_binding(subject: RuleSubject, role: Role, namespace: str, creator: str) -> Object:
    """The binding of a new rule. Its name is derived from the rule, so that creating a rule twice conflicts."""
    digest = hashlib.sha256("\0".join((*subject, role.cluster_role)).encode()).hexdigest()[:16]
    kind = kinds.ROLE_BINDING if namespace else kinds.CLUSTER_ROLE_BINDING
    metadata = {
        "name": f"access-rule-{digest}", "labels": {RULE_LABEL: role.name},
        "annotations": {"rowlock.dev/created-by": creator}, **({"namespace": namespace} if namespace else {}),
    }  # fmt: skip
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": metadata,
        "roleRef": {"apiGroup": kinds.ROLE.group, "kind": "ClusterRole", "name": role.cluster_role},
        "subjects": [_to_kubernetes(subject)],
    }


def without_subject(rule: AccessRule) -> Object | None:
    """The binding without this rule's subject; None if it has no other subjects."""
    left = [entry for index, entry in enumerate(rule.binding["subjects"]) if index != rule.position]
    return {**rule.binding, "subjects": left} if left else None


def without_subjects(rule: AccessRule, is_gone: Callable[[RuleSubject], bool]) -> Object | None:
    """The rule's binding without the subjects for which `is_gone` is true; None if no others are left."""
    namespace = objects.namespace(rule.binding)
    left = [entry for entry in rule.binding["subjects"] if not is_gone(_from_kubernetes(entry, namespace))]
    return {**rule.binding, "subjects": left} if left else None


def is_of_namespace(subject: RuleSubject, namespace: str) -> bool:
    """Whether the subject is a service account of the namespace, or the group of all of them."""
    if subject.type == "service-account":
        return subject.id.startswith(f"{namespace}:")
    if subject.type == "group":
        return subject.id == f"system:serviceaccounts:{namespace}"
    return subject.type == "user" and subject.id.startswith(f"system:serviceaccount:{namespace}:")


def rule_json(rule: AccessRule, scope: tuple[str, str], cluster: str) -> dict[str, Any]:
    """Run:ai's JSON of a rule; `scope` is (id, name) of the project or cluster."""
    meta = objects.meta(rule.binding)
    created = meta.get("creationTimestamp")
    return {
        "id": rule.id, "subjectId": rule.subject.id, "subjectType": rule.subject.type, "roleId": rule.role.id,
        "roleName": rule.role.name, "scopeId": scope[0], "scopeName": scope[1],
        "scopeType": "project" if rule.namespace else "cluster", "clusterId": cluster, "tenantId": 1, "createdAt": created,
        "updatedAt": created, "deletedAt": None,
        "createdBy": objects.annotations(rule.binding).get("rowlock.dev/created-by", ""),
        "status": {"phase": "Ready", "message": "", "details": ""}, "binding": objects.name(rule.binding),
    }  # fmt: skip
