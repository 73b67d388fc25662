"""What the operator's validating webhooks say to a new or changed job, word for word.

They look at the object as it was written, before any default. One row of `RULES` per kind; MPIJob has no webhook and is
checked when it is reconciled (`mpi.py`). Errors of the CRD's schema are the API server's own and come before these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rowlock.kinds import JAXJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB, Kind
from rowlock.objects import Object, dig, name
from rowlock.training.framework import DEFAULT, MANAGED_BY_US, Framework, Parity
from rowlock.training.registry import FRAMEWORKS

MANAGERS = (MANAGED_BY_US, "kueue.x-k8s.io/multikueue")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_TOO_LONG = "must be no more than 63 characters"
_NOT_A_LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


@dataclass(frozen=True, slots=True)
class Review:
    """What was wrong, in order, and what was only doubtful."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The errors as the operator joins them; "" = admitted."""
        return self.errors[0] if len(self.errors) == 1 else f"[{', '.join(self.errors)}]" if self.errors else ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What one kind's webhook checks beside names and containers."""

    closed: bool = True
    """Only the framework's roles may appear, in their exact case."""
    one_master: bool = False
    """replicas of Master must be written, and 1."""
    needs_master: bool = False
    least_worker: bool = False
    elastic: bool = False
    one_chief: bool = False
    manager: bool = True
    """managedBy is checked."""
    manager_fixed: bool = True
    """managedBy cannot be changed."""
    quoted: bool = False
    """The message about the main container quotes its name."""


RULES: dict[Kind, Rules] = {
    PYTORCHJOB: Rules(one_master=True, least_worker=True, elastic=True, manager_fixed=False),
    TFJOB: Rules(closed=False, one_chief=True),
    XGBOOSTJOB: Rules(one_master=True, needs_master=True),
    PADDLEJOB: Rules(quoted=True),
    JAXJOB: Rules(manager=False, manager_fixed=False),
}


def webhook(kind: Kind) -> str:
    """The webhook's name, as it stands in the API server's answer."""
    return f"validator.{kind.singular}.training-operator.kubeflow.org"


def denial(kind: Kind, review: Review) -> str:
    """The API server's sentence for a refusal (403 Forbidden)."""
    return f'admission webhook "{webhook(kind)}" denied the request: {review.message}'


def review(kind: Kind, old: Object | None, new: Object, parity: Parity = DEFAULT) -> Review:
    """Judge a job that is being created (`old` is None) or updated. Kinds without a webhook are admitted."""
    rules = RULES.get(kind)
    if rules is None:
        return Review()
    errors = [*_name(new), *_manager(rules, old, new, parity)]
    if rules.elastic:
        errors += _elastic(new)
    errors += _replicas(FRAMEWORKS[kind], rules, new)
    warnings: tuple[str, ...] = ()
    if rules.elastic and dig(new, "spec.elasticPolicy.nProcPerNode") is not None:
        warnings = ("spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead",)
    return Review(tuple(dict.fromkeys(errors)), warnings)


def _name(new: Object) -> Iterator[str]:
    given = name(new)
    wrong = [_TOO_LONG] * (len(given) > 63) + [_NOT_A_LABEL] * (not _LABEL.fullmatch(given))
    if wrong:
        yield f'metadata.name: Invalid value: "{given}": should match: {",".join(wrong)}'


def _manager(rules: Rules, old: Object | None, new: Object, parity: Parity) -> Iterator[str]:
    field, was, now = "spec.runPolicy.managedBy", dig(old, "spec.runPolicy.managedBy"), _managed_by(new)
    if (rules.manager_fixed or (rules.manager and parity.immutable_owner)) and old is not None and was != now:
        shown = "null" if now is None else f'"{now}"'
        yield f"{field}: Invalid value: {shown}: field is immutable"
    if rules.manager and now is not None and now not in MANAGERS:
        yield f'{field}: Unsupported value: "{now}": supported values: {_quoted(MANAGERS)}'


def _managed_by(obj: Object) -> Any:
    return dig(obj, "spec.runPolicy.managedBy")


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f'"{word}"' for word in words)


def _elastic(new: Object) -> Iterator[str]:
    spec = new.get("spec") or {}
    policy = spec.get("elasticPolicy")
    if policy is None:
        return
    if policy.get("nProcPerNode") is not None and spec.get("nprocPerNode") is not None:
        yield "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode"
    if "Worker" not in (spec.get("pytorchReplicaSpecs") or {}):
        yield "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used"


def _replicas(framework: Framework, rules: Rules, new: Object) -> Iterator[str]:
    path = f"spec.{framework.replicas}"
    replicas = (new.get("spec") or {}).get(framework.replicas)
    if replicas is None:
        yield f"{path}: Required value: must be required"
        return
    if rules.one_chief and "Chief" in replicas and "Master" in replicas:
        yield f"{path}: Forbidden: must not have more than 1 Chief or Master role"
    for role, replica in sorted(replicas.items()):
        if rules.closed and role not in framework.roles:
            yield f'{path}[{role}]: Unsupported value: "{role}": supported values: {_quoted(framework.roles)}'
        yield from _replica(framework, rules, f"{path}[{role}]", role, replica or {})
    if rules.needs_master and "Master" not in replicas:
        yield f"{path}[Master]: Required value: must be present"


def _replica(framework: Framework, rules: Rules, path: str, role: str, replica: Object) -> Iterator[str]:
    count = replica.get("replicas")
    if rules.one_master and role == "Master" and count != 1:
        yield f"{path}.replicas: Forbidden: must be 1"
    if rules.least_worker and role == "Worker" and count is not None and count < 1:
        yield f"{path}.replicas: Forbidden: must be at least 1"
    containers = dig(replica, "template.spec.containers", [])
    here = f"{path}.template.spec.containers"
    if not containers:
        yield f"{here}: Required value: must be specified"
    for i, container in enumerate(containers):
        if not container.get("image"):
            yield f"{here}[{i}].image: Required value: must be required"
    if not any(c.get("name") == framework.container for c in containers):
        shown = f'"{framework.container}"' if rules.quoted else framework.container
        yield f"{here}: Required value: must have at least one container with name {shown}"
