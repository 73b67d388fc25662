"""Who a container's program is: `securityContext` for processes of this machine.

Root can become anybody, so `runAsUser`, `runAsGroup`, `supplementalGroups` and `fsGroup` are applied where the cluster
was started by root; elsewhere programs are the user who started it, which `remarks` says. The rest of a
`securityContext` belongs to containers: what a process does not get is said, too.
"""

import os
import pwd
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rowlock.cluster.node.environment import Missing
from rowlock.cluster.node.pod_facts import all_containers
from rowlock.objects import Object, dig, namespace, uid
from rowlock.objects import name as name_of

IDENTITY = ("runAsUser", "runAsGroup", "supplementalGroups", "fsGroup", "fsGroupChangePolicy")
"""What is applied where root started the cluster."""
ALWAYS = ("runAsNonRoot", "allowPrivilegeEscalation")
"""What is applied, or needs nothing, everywhere."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    home: str


Accounts = Callable[[int], Account | None]


def account(number: int) -> Account | None:
    """The machine's user with this number."""
    try:
        found = pwd.getpwuid(number)
    except KeyError:
        return None
    return Account(found.pw_name, found.pw_uid, found.pw_gid, found.pw_dir)


@dataclass(frozen=True, slots=True)
class Rights:
    """What becomes of the program before exec; None and () = as the cluster's own process."""

    account: Account | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    no_new_privileges: bool = False

    def spec(self) -> dict[str, Any]:
        """For the shim."""
        found: dict[str, Any] = {"no_new_privileges": True} if self.no_new_privileges else {}
        if self.account is not None or self.group is not None or self.groups:
            gid = self.group if self.group is not None else self.account.gid if self.account else None
            found |= {"uid": self.account.uid if self.account else None, "gid": gid, "groups": list(self.groups)}
        return found

    def environment(self) -> dict[str, str]:
        """The variables that say who one is."""
        if self.account is None:
            return {}
        return {"HOME": self.account.home, "USER": self.account.name, "LOGNAME": self.account.name}


def rights(
    pod: Object, container: Mapping[str, Any], *, me: int = os.geteuid(), accounts: Accounts = account
) -> Rights:
    """Raises Missing with a sentence when the program may not run as it would."""
    wanted = {**dig(pod, "spec.securityContext", {}), **(container.get("securityContext") or {})}
    number = wanted.get("runAsUser")
    _not_root(pod, container, wanted, me)
    locked = wanted.get("allowPrivilegeEscalation") is False
    if me != 0:
        return Rights(no_new_privileges=locked)
    found = None if number is None or int(number) == me else accounts(int(number))
    if number is not None and int(number) != me and found is None:
        raise Missing(
            f"container {container['name']}: runAsUser {number} is no user of this machine, where programs are "
            f"processes: name one that is (`id -u NAME`), or make one with `useradd -u {number} NAME`"
        )
    groups = [int(g) for g in wanted.get("supplementalGroups") or ()]
    if wanted.get("fsGroup") is not None:
        groups.append(int(wanted["fsGroup"]))
    group = wanted.get("runAsGroup")
    return Rights(found, None if group is None else int(group), tuple(groups), locked)


def _not_root(pod: Object, container: Mapping[str, Any], wanted: Mapping[str, Any], me: int) -> None:
    number = wanted.get("runAsUser")
    if not wanted.get("runAsNonRoot") or (number if number is not None and me == 0 else me) != 0:
        return
    where = f'(pod: "{name_of(pod)}_{namespace(pod)}({uid(pod)})", container: {container["name"]})'
    if number is None:
        raise Missing(f"container has runAsNonRoot and image will run as root {where}")
    raise Missing(f"container's runAsUser breaks non-root policy {where}")


def unwritable(mounts: Sequence[Mapping[str, Any]], user: Mapping[str, Any], *, me: int = os.geteuid()) -> list[str]:
    """What a program of this user (see `Rights.spec`) cannot write to though it is mounted to be written, a sentence each.

    Files of ConfigMaps and Secrets are there to be read."""
    number, found = user.get("uid") if user.get("uid") is not None else me, []
    groups = {user["gid"], *user["groups"]} if "gid" in user else {os.getegid(), *os.getgroups()}
    for mount in mounts:
        place = str(mount["source"])
        if mount.get("read_only") or os.path.lexists(f"{place}/..data") or not os.path.exists(place):
            continue
        seen, where = os.stat(place), f"volume {mount['volume']} ({place}) at {mount['target']}"
        if os.statvfs(place).f_flag & os.ST_RDONLY:
            found.append(
                f"{where} lies on a read-only file system: writing there will fail; mount it with readOnly: true"
            )
        elif number != 0 and not _may_write(seen, int(number or 0), groups):
            help_ = (
                "fsGroup gives a pod's own volumes to a group"
                if "/.volumes/" in place
                else "chown it or choose another"
            )
            owner = f"user {seen.st_uid}, group {seen.st_gid}, mode {stat.S_IMODE(seen.st_mode):o}"
            found.append(f"{where} belongs to {owner}, and user {number} may not write there: {help_}")
    return found


def _may_write(seen: os.stat_result, number: int, groups: Collection[int | None]) -> bool:
    """By the bits of the mode."""
    if seen.st_uid == number:
        return bool(seen.st_mode & stat.S_IWUSR)
    return bool(seen.st_mode & (stat.S_IWGRP if seen.st_gid in groups else stat.S_IWOTH))


def fs_group(pod: Object, me: int = os.geteuid()) -> int | None:
    """The group that owns the pod's volumes; None = as they are made."""
    group = dig(pod, "spec.securityContext.fsGroup")
    return None if group is None or me != 0 else int(group)


def remarks(pod: Object, me: int = os.geteuid()) -> list[str]:
    """What the pod's security contexts ask for and do not get, a sentence each."""
    found = _remark(dig(pod, "spec.securityContext", {}), "the pod", me)
    for container in all_containers(pod):
        found += _remark(container.get("securityContext") or {}, container["name"], me)
    return found


def _remark(wanted: Mapping[str, Any], whose: str, me: int) -> list[str]:
    """Empty wishes and `false` ask for nothing; whoever one is already is no wish either."""
    applied = {*ALWAYS, *(IDENTITY if me == 0 else ())}
    asked = sorted(
        key
        for key, value in wanted.items()
        if key not in applied
        and value not in (None, {}, [])
        and value is not False
        and not (key == "runAsUser" and value == me)
    )
    if not asked:
        return []
    return [
        f"securityContext of {whose} is not applied ({', '.join(asked)}): programs run as the user who started the cluster"
    ]
