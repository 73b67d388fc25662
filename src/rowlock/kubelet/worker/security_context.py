"""The user of a container's program: `securityContext` for processes of this machine.

Only root can change users, so `runAsUser`, `runAsGroup`, `supplementalGroups` and `fsGroup` are applied where root started the
cluster; elsewhere programs run as the user who started it, which `unapplied_warnings` reports. The rest of a
`securityContext` applies to containers only: what a process does not get is reported, too.
"""

import os
import pwd
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.kubelet.pod.facts import ContainerConfigError
from rowlock.kubelet.pod.spec import ContainerSpec, PodSpec
from rowlock.kubelet.shim.shim_request import UserSpec


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    home: str


AccountLookup = Callable[[int], Account | None]


def find_account(number: int) -> Account | None:
    """The machine's user with this number; None = there is none."""
    try:
        entry = pwd.getpwuid(number)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, entry.pw_dir)


@dataclass(frozen=True, slots=True)
class EffectiveSecurityContext:
    """The identity that the program takes on before exec; None and () = as the cluster's own process."""

    account: Account | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    no_new_privileges: bool = False

    def user_spec(self) -> UserSpec:
        """The user as the shim's request states it."""
        spec: UserSpec = {"no_new_privileges": True} if self.no_new_privileges else {}
        if self.account is not None or self.group is not None or self.groups:
            gid = self.group if self.group is not None else self.account.gid if self.account else None
            spec |= {"uid": self.account.uid if self.account else None, "gid": gid, "groups": list(self.groups)}
        return spec

    def environment(self) -> dict[str, str]:
        """Variables that name the user; {} for the server's own."""
        if self.account is None:
            return {}
        return {"HOME": self.account.home, "USER": self.account.name, "LOGNAME": self.account.name}


def effective_security_context(
    pod: PodSpec,
    container: ContainerSpec,
    *,
    of_image: Account | None = None,
    euid: int = os.geteuid(),
    accounts: AccountLookup = find_account,
) -> EffectiveSecurityContext:
    """The identity of a container's program. `of_image`: the user that the image names, if the image has users of its own.

    Raises ContainerConfigError with a sentence when `runAsNonRoot` forbids the user, or the user does not exist."""
    security_context = pod.container_security_context(container)
    if of_image is not None and security_context.get("runAsUser") is None:
        security_context = {**security_context, "runAsUser": of_image.uid}
    run_as_user = security_context.get("runAsUser")
    _verify_run_as_non_root(pod, container, security_context, euid)
    no_new_privileges = security_context.get("allowPrivilegeEscalation") is False
    if euid != 0:
        return EffectiveSecurityContext(no_new_privileges=no_new_privileges)
    account_of_user = None if run_as_user is None or int(run_as_user) == euid else accounts(int(run_as_user))
    if of_image is not None and run_as_user is not None and int(run_as_user) == of_image.uid:
        account_of_user = of_image
    if run_as_user is not None and int(run_as_user) != euid and account_of_user is None:
        raise ContainerConfigError(
            f"container {container.name}: runAsUser {run_as_user} is not a user of this machine, and programs run "
            f"as its users: name another one (`id -u NAME`), or create it with `useradd -u {run_as_user} NAME`"
        )
    groups = [int(g) for g in security_context.get("supplementalGroups") or ()]
    if security_context.get("fsGroup") is not None:
        groups.append(int(security_context["fsGroup"]))
    group = security_context.get("runAsGroup")
    return EffectiveSecurityContext(
        account_of_user, None if group is None else int(group), tuple(groups), no_new_privileges
    )


def _verify_run_as_non_root(
    pod: PodSpec, container: ContainerSpec, security_context: Mapping[str, Any], euid: int
) -> None:
    run_as_user = security_context.get("runAsUser")
    if (
        not security_context.get("runAsNonRoot")
        or (run_as_user if run_as_user is not None and euid == 0 else euid) != 0
    ):
        return
    location = f'(pod: "{pod.location}", container: {container.name})'
    if run_as_user is None:
        raise ContainerConfigError(f"container has runAsNonRoot and image will run as root {location}")
    raise ContainerConfigError(f"container's runAsUser breaks non-root policy {location}")


def unwritable_mounts(
    mounts: Sequence[Mapping[str, Any]], user: Mapping[str, Any], *, euid: int = os.geteuid()
) -> list[str]:
    """Writable mounts that a program of this user (see `EffectiveSecurityContext.user_spec`) cannot write to, one sentence each.

    Files of ConfigMaps and Secrets are left out: they are meant to be read."""
    user_id, sentences = user.get("uid") if user.get("uid") is not None else euid, []
    groups = {user["gid"], *user["groups"]} if "gid" in user else {os.getegid(), *os.getgroups()}
    for mount in mounts:
        source = str(mount["source"])
        if mount.get("read_only") or os.path.lexists(f"{source}/..data") or not os.path.exists(source):
            continue
        file_stat, location = os.stat(source), f"volume {mount['volume']} ({source}) at {mount['target']}"
        if os.statvfs(source).f_flag & os.ST_RDONLY:
            sentences.append(
                f"{location} lies on a read-only file system: writing there will fail; mount it with readOnly: true"
            )
        elif user_id != 0 and not _may_write(file_stat, int(user_id or 0), groups):
            help_ = (
                "fsGroup gives a pod's own volumes to a group"
                if "/.volumes/" in source
                else "chown it or choose another"
            )
            owner = f"user {file_stat.st_uid}, group {file_stat.st_gid}, mode {stat.S_IMODE(file_stat.st_mode):o}"
            sentences.append(f"{location} belongs to {owner}, and user {user_id} may not write there: {help_}")
    return sentences


def _may_write(file_stat: os.stat_result, user_id: int, groups: Collection[int | None]) -> bool:
    """Whether the mode bits let the user write."""
    if file_stat.st_uid == user_id:
        return bool(file_stat.st_mode & stat.S_IWUSR)
    return bool(file_stat.st_mode & (stat.S_IWGRP if file_stat.st_gid in groups else stat.S_IWOTH))
