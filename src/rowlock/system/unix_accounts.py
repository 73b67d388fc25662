"""Runs all pods of a project as its Unix account, whatever they ask for: MustRunAs for a whole namespace.

The namespace's annotation `rowlock.dev/unix-account` has the account with its uid and gids in the format of `id`; only the cluster's owner
sets it. Pods that would bypass it (another user, privileges, directories of the node that root would mount) are refused. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock import objects
from rowlock.errors import Forbidden
from rowlock.objects import Object

UNIX_ACCOUNT_ANNOTATION = "rowlock.dev/unix-account"
_VALUE = re.compile(
    r"([a-z_][a-z0-9_.-]{0,31}\$?) uid=([0-9]{1,10}) gid=([0-9]{1,10}) groups=([0-9]{1,10}(?:,[0-9]{1,10}){0,255})"
)
_CONTAINER_FIELDS = ("initContainers", "containers", "ephemeralContainers")


@dataclass(frozen=True, slots=True)
class UnixAccount:
    """A user of the machine, with all groups that it is a member of."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> UnixAccount | None:
        """Parse the annotation's value; None if it is malformed."""
        match = _VALUE.fullmatch(text)
        if match is None:
            return None
        return cls(match[1], int(match[2]), int(match[3]), tuple(int(number) for number in match[4].split(",")))


@dataclass(frozen=True, slots=True)
class UnixAccountRules:
    """The cluster's rules. `required`: a namespace without an account runs no pods (a shared machine). `can_switch`: the server was started
    by root, so that programs can run as another user."""

    required: bool = False
    can_switch: bool = True


UNRESTRICTED = UnixAccountRules()


def check_account(obj: Object, resource: str, namespace: Object | None, rules: UnixAccountRules) -> str | None:
    """The account annotation of the namespace of a job or pod; None if it has none. Raises Forbidden if the rules require one."""
    text = objects.annotations(namespace or {}).get(UNIX_ACCOUNT_ANNOTATION)
    if text is None and rules.required:
        raise _forbidden(
            obj, "its project has no Unix account, and on this machine every pod runs as one: the owner gives it one with"
            " `rowlock project update PROJECT --unix-account NAME`", resource,
        )  # fmt: skip
    return text


def restrict_pod(pod: Object, namespace: Object | None, rules: UnixAccountRules) -> Object:
    """The pod changed to run as its namespace's account. Raises Forbidden, with the reason, if it asks for something else."""
    text = check_account(pod, "pods", namespace, rules)
    if text is None:
        return pod
    account = UnixAccount.parse(text)
    if account is None:
        raise _forbidden(
            pod, f"the annotation {UNIX_ACCOUNT_ANNOTATION} of its namespace cannot be read: {text[:80]!r}"
        )
    if account.uid == 0:
        return pod
    if not rules.can_switch:
        raise _forbidden(pod, f"it would run as {account.name}, but the server was not started by root")
    spec = dict(pod.get("spec") or {})
    _check_volumes(pod, spec, account)
    spec["securityContext"] = _restrict_context(pod, "spec.securityContext", spec.get("securityContext") or {}, account)
    for field in _CONTAINER_FIELDS:
        if spec.get(field):
            spec[field] = [_restrict_container(pod, field, n, one, account) for n, one in enumerate(spec[field])]
    return {**pod, "spec": spec}


def check_annotation_is_kept(old: Object | None, new: Object) -> None:
    """For writes of namespaces by users other than the cluster's owner. Raises Forbidden if the annotation changes."""
    before, after = (objects.annotations(one or {}).get(UNIX_ACCOUNT_ANNOTATION) for one in (old, new))
    if before != after:
        name = objects.name(new)
        why = f"only the cluster's owner says as which Unix account its pods run ({UNIX_ACCOUNT_ANNOTATION})"
        raise Forbidden(f'namespaces "{name}" is forbidden: {why}', details={"name": name, "kind": "namespaces"})


def _restrict_context(pod: Object, path: str, context: Mapping[str, Any], account: UnixAccount) -> dict[str, Any]:
    """The pod's security context with the account's user and groups; fsGroup defaults to the account's group."""
    _check_identity(pod, path, context, account)
    own_groups = {account.gid, *account.groups}
    foreign = [number for number in context.get("supplementalGroups") or () if number not in own_groups]
    if foreign or context.get("fsGroup", account.gid) not in own_groups:
        groups = ", ".join(map(str, sorted(own_groups)))
        raise _forbidden(pod, f"{path}: {account.name} is a member of the groups {groups} and of no other")
    identity = {
        "runAsUser": account.uid,
        "runAsGroup": account.gid,
        "supplementalGroups": sorted({*account.groups} - {account.gid}),
    }
    return {"fsGroup": account.gid, **context, **identity}


def _restrict_container(
    pod: Object, field: str, number: int, container: Mapping[str, Any], account: UnixAccount
) -> dict[str, Any]:
    context, path = container.get("securityContext") or {}, f"spec.{field}[{number}].securityContext"
    _check_identity(pod, path, context, account)
    if context.get("privileged") or (context.get("capabilities") or {}).get("add"):
        raise _forbidden(pod, f"{path}: programs of {account.name} get no privileges and no capabilities")
    if context.get("allowPrivilegeEscalation"):
        raise _forbidden(pod, f"{path}.allowPrivilegeEscalation must be false: nobody becomes another user here")
    return {**container, "securityContext": {**context, "allowPrivilegeEscalation": False}}


def _check_identity(pod: Object, path: str, context: Mapping[str, Any], account: UnixAccount) -> None:
    for field, own in (("runAsUser", account.uid), ("runAsGroup", account.gid)):
        if context.get(field) not in (None, own):
            raise _forbidden(pod, f"{path}.{field} must be {own}: pods of this project run as {account.name}")


def _check_volumes(pod: Object, spec: Mapping[str, Any], account: UnixAccount) -> None:
    volumes: Sequence[Mapping[str, Any]] = spec.get("volumes") or ()
    for number, volume in enumerate(volumes):
        if volume.get("hostPath") is not None:
            path = str(volume["hostPath"].get("path", ""))[:200]
            raise _forbidden(
                pod, f"spec.volumes[{number}]: root would mount {path}. Programs see this machine's files as {account.name} without a"
                " volume: use the path itself",
            )  # fmt: skip
        if volume.get("nfs") is not None:
            where = f"spec.volumes[{number}]"
            raise _forbidden(
                pod, f"{where}: programs see the NFS exports of this machine as {account.name} where it has mounted them, without a"
                " volume: use that path",
            )  # fmt: skip


def _forbidden(obj: Object, why: str, resource: str = "pods") -> Forbidden:
    name = objects.name(obj) or str(objects.meta(obj).get("generateName") or "")
    return Forbidden(f'{resource} "{name}" is forbidden: {why}', details={"name": name, "kind": resource})
