"""The operator's validating webhooks for a new or changed job, with their exact messages.

They check the object as it was written, without defaults. One row of `RULES` per kind; MPIJob has no webhook and is checked when it is
reconciled (`mpi.py`). The API server's schema errors come before these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rowlock.kinds import JAXJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB, Kind
from rowlock.objects import Object, dig, name
from rowlock.training.framework import Framework
from rowlock.training.frameworks.registry import FRAMEWORKS
from rowlock.training.model import DEFAULT, MANAGED_BY_US, MASTER, WORKER, Parity

MANAGERS = (MANAGED_BY_US, "kueue.x-k8s.io/multikueue")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_TOO_LONG = "must be no more than 63 characters"
_NOT_A_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """The errors, in order, and the warnings."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The errors joined as by the operator; "" = admitted."""
        return self.errors[0] if len(self.errors) == 1 else f"[{', '.join(self.errors)}]" if self.errors else ""


@dataclass(frozen=True, slots=True)
class WebhookRules:
    """What a kind's webhook checks besides names and containers."""

    known_roles_only: bool = True
    """Only the framework's roles may appear, in their exact case."""
    exactly_one_master: bool = False
    """replicas of Master must be given, and be 1."""
    min_one_worker: bool = False
    has_elastic_policy: bool = False
    at_most_one_chief: bool = False
    """Chief and its old name, Master, exclude each other."""
    checks_managed_by: bool = True
    """managedBy is checked."""
    immutable_managed_by: bool = True
    """managedBy cannot be changed."""
    quotes_container_name: bool = False
    """The message about the main container quotes its name."""


RULES: dict[Kind, WebhookRules] = {
    PYTORCHJOB: WebhookRules(
        exactly_one_master=True, min_one_worker=True, has_elastic_policy=True, immutable_managed_by=False
    ),
    TFJOB: WebhookRules(known_roles_only=False, at_most_one_chief=True),
    XGBOOSTJOB: WebhookRules(exactly_one_master=True),
    PADDLEJOB: WebhookRules(quotes_container_name=True),
    JAXJOB: WebhookRules(checks_managed_by=False, immutable_managed_by=False),
}


def webhook_name(kind: Kind) -> str:
    """The webhook's name in the API server's error message."""
    return f"validator.{kind.singular}.training-operator.kubeflow.org"


def denial_message(kind: Kind, review: AdmissionResult) -> str:
    """The API server's message for a refusal (403 Forbidden)."""
    return f'admission webhook "{webhook_name(kind)}" denied the request: {review.message}'


def review_job(kind: Kind, old: Object | None, new: Object, parity: Parity = DEFAULT) -> AdmissionResult:
    """Judge a job that is being created (`old` is None) or updated. Kinds without a webhook are admitted."""
    rules = RULES.get(kind)
    if rules is None:
        return AdmissionResult()
    errors = [*_name_errors(new), *_managed_by_errors(rules, old, new, parity)]
    if rules.has_elastic_policy:
        errors += _elastic_policy_errors(FRAMEWORKS[kind], new)
    errors += _replica_spec_errors(FRAMEWORKS[kind], rules, new)
    warnings: tuple[str, ...] = ()
    if rules.has_elastic_policy and dig(new, "spec.elasticPolicy.nProcPerNode") is not None:
        warnings = ("spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead",)
    return AdmissionResult(tuple(dict.fromkeys(errors)), warnings)


def _name_errors(new: Object) -> Iterator[str]:
    job_name = name(new)
    problems = [_LABEL_TOO_LONG] * (len(job_name) > 63) + [_NOT_A_LABEL] * (not _LABEL.fullmatch(job_name))
    if problems:
        yield f'metadata.name: Invalid value: "{job_name}": should match: {",".join(problems)}'


def _managed_by_errors(rules: WebhookRules, old: Object | None, new: Object, parity: Parity) -> Iterator[str]:
    field, old_manager, new_manager = "spec.runPolicy.managedBy", dig(old, "spec.runPolicy.managedBy"), _managed_by(new)
    if (
        (rules.immutable_managed_by or (rules.checks_managed_by and parity.immutable_owner))
        and old is not None
        and old_manager != new_manager
    ):
        shown = "null" if new_manager is None else f'"{new_manager}"'
        yield f"{field}: Invalid value: {shown}: field is immutable"
    if rules.checks_managed_by and new_manager is not None and new_manager not in MANAGERS:
        yield f'{field}: Unsupported value: "{new_manager}": supported values: {_join_quoted(MANAGERS)}'


def _managed_by(obj: Object) -> Any:
    return dig(obj, "spec.runPolicy.managedBy")


def _join_quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _elastic_policy_errors(framework: Framework, new: Object) -> Iterator[str]:
    spec = new.get("spec") or {}
    policy = spec.get("elasticPolicy")
    if policy is None:
        return
    if policy.get("nProcPerNode") is not None and spec.get("nprocPerNode") is not None:
        yield "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"
    if WORKER not in (spec.get(framework.replicas) or {}):
        yield f"spec.{framework.replicas}[{WORKER}]: Required value: must be configured if elastic policy is used"


def _replica_spec_errors(framework: Framework, rules: WebhookRules, new: Object) -> Iterator[str]:
    path = f"spec.{framework.replicas}"
    replicas = (new.get("spec") or {}).get(framework.replicas)
    if replicas is None:
        yield f"{path}: Required value: must be required"
        replicas = {}  # the operator also continues with its checks
    if rules.at_most_one_chief and all(role in replicas for role in framework.lead_roles):
        yield f"{path}: Forbidden: must not have more than 1 Chief or Master role"
    for role, replica in sorted(replicas.items()):
        if rules.known_roles_only and role not in framework.roles:
            yield f'{path}[{role}]: Unsupported value: "{role}": supported values: {_join_quoted(framework.roles)}'
        yield from _role_errors(framework, rules, f"{path}[{role}]", role, replica or {})
    if framework.needs_lead and framework.lead_role not in replicas:
        yield f"{path}[{framework.lead_role}]: Required value: must be present"


def _role_errors(framework: Framework, rules: WebhookRules, path: str, role: str, replica: Object) -> Iterator[str]:
    count = replica.get("replicas")
    if rules.exactly_one_master and role == MASTER and count != 1:
        yield f"{path}.replicas: Forbidden: must be 1"
    if rules.min_one_worker and role == WORKER and count is not None and count < 1:
        yield f"{path}.replicas: Forbidden: must be at least 1"
    containers = dig(replica, "template.spec.containers", [])
    containers_path = f"{path}.template.spec.containers"
    if not containers:
        yield f"{containers_path}: Required value: must be specified"
    for i, container in enumerate(containers):
        if not container.get("image"):
            yield f"{containers_path}[{i}].image: Required value: must be required"
    if not any(c.get("name") == framework.container for c in containers):
        shown = f'"{framework.container}"' if rules.quotes_container_name else framework.container
        yield f"{containers_path}: Required value: must have at least one container with name {shown}"
