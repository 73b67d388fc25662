"""The rights that rowlock needs on a real cluster, as a table: manifests, `rowlock doctor` and the checks at start read it.

Verbs are those of the Kubernetes API; a resource may name a subresource (`pods/status`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock import kinds
from rowlock.api import Api
from rowlock.errors import Forbidden, NotFound, Unsupported
from rowlock.kinds import Kind
from rowlock.objects import Object, dig

SYSTEM_NAMESPACE = "rowlock-system"
"""The namespace of rowlock's own objects on a real cluster: its service account and its Leases."""
SCHEDULER_LEASE = (SYSTEM_NAMESPACE, "rowlock-scheduler")
OPERATOR_LEASE = (SYSTEM_NAMESPACE, "rowlock-operator")
JOBSET_LEASE = (SYSTEM_NAMESPACE, "rowlock-jobset")
TRAINER_LEASE = (SYSTEM_NAMESPACE, "rowlock-trainer")
ARCHIVE_LEASE = (SYSTEM_NAMESPACE, "rowlock-archive")
SWEEPS_LEASE = (SYSTEM_NAMESPACE, "rowlock-sweeps")
SWEEPS_ROLE = "rowlock-sweeps"
NO_NAMESPACE = "rowlock-no-such-namespace"
"""A namespace that does not exist: rights that are granted there are granted in all namespaces."""
RULES_REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", (), False)
ACCESS_REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", (), False)


@dataclass(frozen=True, slots=True)
class Rule:
    """Rights to resources of one API group, in `namespace` or, if that is "", in all."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    namespace: str = ""

    def policy_rule(self) -> Object:
        """The `rbac.authorization.k8s.io/v1` PolicyRule."""
        return {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}


_JOBS = tuple(kind.plural for kind in kinds.JOBS)
_ALL = ("list", "watch", "get", "create", "patch", "delete")
SERVER_RULES: tuple[Rule, ...] = (
    Rule("kubeflow.org", _JOBS, _ALL),
    Rule("batch", (kinds.BATCH_JOB.plural,), ("list", "watch", "get", "patch", "delete")),
    Rule("jobset.x-k8s.io", (kinds.JOB_SET.plural,), ("list", "watch", "get", "patch", "delete")),
    Rule("trainer.kubeflow.org", (kinds.TRAIN_JOB.plural,), ("list", "watch", "get", "patch", "delete")),
    Rule("scheduling.run.ai", ("queues",), ("list", "watch", "create", "patch", "delete")),
    Rule("scheduling.run.ai", ("podgroups",), ("list", "watch")),
    Rule("scheduling.run.ai", ("bindrequests",), ("list",)),
    Rule("scheduling.k8s.io", ("priorityclasses",), ("get",)),
    Rule("", ("namespaces",), _ALL),
    Rule("", ("nodes",), ("list", "watch")),
    Rule("", ("pods",), ("list", "watch", "get")),
    Rule("", ("pods/log",), ("get",)),
    Rule("", ("pods/exec", "pods/attach", "pods/portforward"), ("get", "create")),
    Rule("", ("events",), ("list", "watch")),
    Rule("", ("persistentvolumeclaims",), ("get", "create", "delete")),
    Rule("", ("configmaps",), ("list", "watch", "create", "patch", "delete")),
    Rule(
        "rbac.authorization.k8s.io", ("roles", "rolebindings", "clusterroles", "clusterrolebindings"), ("list", "watch")
    ),
    Rule("storage.k8s.io", ("storageclasses",), ("list",)),
    Rule("node.k8s.io", ("runtimeclasses",), ("list",)),
    Rule("apps", ("deployments",), ("list",)),
    Rule("", ("services",), ("get",)),
    Rule("discovery.k8s.io", ("endpointslices",), ("list",)),
    Rule(
        "admissionregistration.k8s.io", ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"), ("list",)
    ),
)
"""Rights for `rowlock up --kubeconfig`: the REST API and the commands."""
CREDENTIAL_RULES: tuple[Rule, ...] = (
    Rule("", ("secrets",), ("get", "create", "patch", "delete")),
    Rule("", ("configmaps",), ("get",)),
)
"""Additional rights for the owner's credentials (`/api/v1/asset/credentials`). They are opt-in: an account that may read the Secrets of
every namespace is almost an administrator. Users with tokens of their own act with their own rights and do not need them."""
DEBUG_RULES: tuple[Rule, ...] = (Rule("", ("pods/ephemeralcontainers",), ("patch",)),)
"""Additional rights for `--debug-image`, opt-in: an account that may add containers to pods may run programs with those pods' rights."""
DIALECT_RULES: Mapping[str, tuple[Rule, ...]] = {
    "volcano": (
        Rule("scheduling.volcano.sh", ("podgroups",), ("list", "create")),
        Rule("scheduling.volcano.sh", ("queues",), ("get",)),
    ),
    "kueue": (Rule("kueue.x-k8s.io", ("localqueues",), ("list", "get")),),
    "coscheduling": (Rule("scheduling.x-k8s.io", ("podgroups",), ("list", "create")),),
}
"""Additional rights for `--scheduler volcano|kueue|coscheduling`: to detect the scheduler and to submit to it. `auto` needs all."""
SCHEDULER_RULES: tuple[Rule, ...] = (
    Rule("", ("pods",), ("list", "watch", "get", "delete")),
    Rule("", ("pods/status",), ("update",)),
    Rule("", ("pods/binding",), ("create",)),
    Rule("", ("nodes", "namespaces"), ("list", "watch")),
    Rule("", ("events",), ("create", "patch")),
    Rule("", ("persistentvolumeclaims",), ("list", "watch", "get", "patch")),
    Rule("", ("persistentvolumes",), ("list", "watch")),
    Rule("storage.k8s.io", ("storageclasses",), ("list", "watch")),
    Rule("scheduling.k8s.io", ("priorityclasses",), ("list", "watch")),
    Rule("scheduling.run.ai", ("queues",), ("list", "watch")),
    Rule("scheduling.run.ai", ("queues/status", "podgroups/status"), ("patch",)),
    Rule("scheduling.run.ai", ("podgroups",), ("list", "watch", "create", "update")),
    Rule("kubeflow.org", _JOBS, ("list", "watch")),
    Rule("kubeflow.org", tuple(f"{plural}/finalizers" for plural in _JOBS), ("update",)),
    Rule("coordination.k8s.io", ("leases",), ("get", "create", "update"), SYSTEM_NAMESPACE),
)
"""Additional rights for `--scheduler own`. The right to finalizers lets a PodGroup name its job as an owner with blockOwnerDeletion, on
clusters that check this (OpenShift does)."""

_MADE = ("list", "watch", "create", "patch", "update", "delete")
OPERATOR_RULES: tuple[Rule, ...] = (
    Rule("kubeflow.org", _JOBS, ("list", "watch", "get", "create", "patch", "update", "delete")),
    Rule("kubeflow.org", tuple(f"{plural}/status" for plural in _JOBS), ("update",)),
    Rule("kubeflow.org", tuple(f"{plural}/finalizers" for plural in _JOBS), ("update",)),
    Rule("", ("pods", "services", "configmaps", "serviceaccounts"), _MADE),
    Rule("autoscaling", ("horizontalpodautoscalers",), _MADE),
    Rule("rbac.authorization.k8s.io", ("roles", "rolebindings"), _MADE),
    Rule("", ("pods/exec",), ("create",)),
    Rule("", ("events",), ("create", "patch")),
    Rule("apps", ("deployments",), ("list",)),
    Rule("coordination.k8s.io", ("leases",), ("list",)),
    Rule("coordination.k8s.io", ("leases",), ("get", "create", "update"), SYSTEM_NAMESPACE),
)
"""Additional rights for `--operator own`. An MPIJob's launcher gets a Role with `pods/exec`, which only an account with that right may
grant. Deployments and Leases are read to detect Kubeflow's operator."""

TRAINER_RULES: tuple[Rule, ...] = (
    Rule("jobset.x-k8s.io", ("jobsets",), ("list", "watch", "get", "create", "update", "delete")),
    Rule("jobset.x-k8s.io", ("jobsets/status", "jobsets/finalizers"), ("update",)),
    Rule("trainer.kubeflow.org", ("trainjobs",), ("list", "watch", "get", "create", "delete")),
    Rule("trainer.kubeflow.org", ("trainjobs/status", "trainjobs/finalizers"), ("update",)),
    Rule("trainer.kubeflow.org", ("trainingruntimes",), ("list", "watch")),
    Rule("trainer.kubeflow.org", ("clustertrainingruntimes",), ("list", "watch", "create")),
    Rule("batch", ("jobs",), ("list", "watch", "create", "patch", "delete")),
    Rule("batch", ("jobs/status",), ("patch",)),
    Rule("", ("services", "configmaps", "secrets", "persistentvolumeclaims"), ("list", "watch", "create")),
    Rule("scheduling.x-k8s.io", ("podgroups",), ("list", "watch", "create", "update")),
    Rule("scheduling.volcano.sh", ("podgroups",), ("list", "watch", "create", "update")),
    Rule("", ("events",), ("create", "patch")),
    Rule("apps", ("deployments",), ("list",)),
    Rule("coordination.k8s.io", ("leases",), ("list",)),
    Rule("coordination.k8s.io", ("leases",), ("get", "create", "update"), SYSTEM_NAMESPACE),
)
"""Additional rights for JobSets and TrainJobs with `--operator own`. Without them only the v1 kinds are operated. Secrets hold the ssh keys of MPI
jobs."""

ARCHIVE_RULES: tuple[Rule, ...] = (
    Rule("coordination.k8s.io", ("leases",), ("get", "create", "update"), SYSTEM_NAMESPACE),
)
"""Additional rights for `--archive`: several servers share an archive and elect the one that writes it."""

SWEEP_RULES: tuple[Rule, ...] = (
    Rule("", ("configmaps",), ("get",)),
    Rule("", ("events",), ("create", "patch")),
    Rule("", ("secrets",), ("get", "create"), SYSTEM_NAMESPACE),
    Rule("coordination.k8s.io", ("leases",), ("get", "create", "update"), SYSTEM_NAMESPACE),
)
"""Additional rights for sweeps: the key that seals them is a Secret that all servers of a cluster share, and one of the servers makes their
runs. Without them there are no sweeps, nor with a scheduler that has rules of its own here."""


def roles_of(
    scheduler: str,
    operator: str = "kubeflow",
    *,
    credentials: bool = False,
    is_shared: bool = False,
    debug: bool = False,
) -> dict[str, tuple[Rule, ...]]:
    """Name of a role → its rules, for an installation with this scheduler and operator (as in `rowlock up`). `is_shared`: servers share an
    archive; `debug`: with debug containers; `credentials`: with the owner's credentials."""
    dialects = DIALECT_RULES if scheduler == "auto" else DIALECT_RULES.keys() & {scheduler}
    return {
        "rowlock-server": SERVER_RULES,
        **({} if scheduler in DIALECT_RULES else {SWEEPS_ROLE: SWEEP_RULES}),
        **{f"rowlock-{name}": DIALECT_RULES[name] for name in dialects},
        **({"rowlock-scheduler": SCHEDULER_RULES} if scheduler == "own" else {}),
        **({"rowlock-operator": OPERATOR_RULES, "rowlock-trainer": TRAINER_RULES} if operator == "own" else {}),
        **({"rowlock-archive": ARCHIVE_RULES} if is_shared else {}),
        **({"rowlock-credentials": CREDENTIAL_RULES} if credentials else {}),
        **({"rowlock-debug": DEBUG_RULES} if debug else {}),
    }


async def missing_rights(api: Api, rules: Sequence[Rule]) -> list[str]:
    """The rights that these credentials lack, as `verb resource.group`, by asking the cluster. Raises ApiError if it does not answer.

    One SelfSubjectRulesReview is enough on most clusters. Rights that it does not show are checked one by one, since an authorization
    webhook may grant rights that cannot be listed."""
    wanted = [(rule, resource, verb) for rule in rules for resource in rule.resources for verb in rule.verbs]
    granted = {namespace: await _granted_rules(api, namespace) for namespace in {rule.namespace for rule in rules}}
    unsure = [right for right in wanted if not any(_covers(policy, right) for policy in granted[right[0].namespace])]
    allowed = await asyncio.gather(*(_is_allowed(api, *right) for right in unsure))
    return [
        f"{verb} {resource}{f'.{rule.group}' if rule.group else ''}"
        for (rule, resource, verb), is_allowed in zip(unsure, allowed, strict=True)
        if not is_allowed
    ]


async def _granted_rules(api: Api, namespace: str) -> list[Object]:
    """The rules granted in this namespace ("" = in all); [] if the cluster does not list them."""
    review: dict[str, Any] = {
        "apiVersion": RULES_REVIEW.api_version,
        "kind": RULES_REVIEW.name,
        "spec": {"namespace": namespace or NO_NAMESPACE},
    }
    try:
        answer = await api.create(RULES_REVIEW, review)
    except (Forbidden, NotFound, Unsupported):
        return []
    rules: list[Object] = dig(answer, "status.resourceRules", [])
    return [rule for rule in rules if not rule.get("resourceNames")]


def _covers(policy: Object, right: tuple[Rule, str, str]) -> bool:
    rule, resource, verb = right
    _, slash, subresource = resource.partition("/")
    names = {resource, "*", *((f"*/{subresource}",) if slash else ())}
    return (
        not {"*", verb}.isdisjoint(policy.get("verbs") or ())
        and not {"*", rule.group}.isdisjoint(policy.get("apiGroups") or ())
        and not names.isdisjoint(policy.get("resources") or ())
    )


async def _is_allowed(api: Api, rule: Rule, resource: str, verb: str) -> bool:
    plural, _, subresource = resource.partition("/")
    attributes = {"group": rule.group, "resource": plural, "subresource": subresource, "verb": verb}
    review: dict[str, Any] = {
        "apiVersion": ACCESS_REVIEW.api_version,
        "kind": ACCESS_REVIEW.name,
        "spec": {"resourceAttributes": {**attributes, "namespace": rule.namespace}},
    }
    answer = await api.create(ACCESS_REVIEW, review)
    return bool(dig(answer, "status.allowed"))


def role_objects(name: str, rules: Sequence[Rule], account: str) -> list[Object]:
    """The ClusterRole of these rules, Roles for those of one namespace, and their bindings to a service account of
    `SYSTEM_NAMESPACE`."""
    made: list[Object] = []
    for namespace in dict.fromkeys(rule.namespace for rule in rules):
        role, binding = (
            (kinds.ROLE, kinds.ROLE_BINDING) if namespace else (kinds.CLUSTER_ROLE, kinds.CLUSTER_ROLE_BINDING)
        )
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        policy = [rule.policy_rule() for rule in rules if rule.namespace == namespace]
        subject = {"kind": "ServiceAccount", "name": account, "namespace": SYSTEM_NAMESPACE}
        reference = {"apiGroup": role.group, "kind": role.name, "name": name}
        made.append({"apiVersion": role.api_version, "kind": role.name, "metadata": metadata, "rules": policy})
        made.append(
            {
                "apiVersion": binding.api_version,
                "kind": binding.name,
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [subject],
            }
        )
    return made
