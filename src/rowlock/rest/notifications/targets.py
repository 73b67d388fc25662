"""Whom things of a run are told, and how their addresses are read from Secrets: the job's own, and that of its project."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rowlock import kinds, objects
from rowlock.api import Api
from rowlock.documents.notify_address import NotifyAddress, parse_notify_address
from rowlock.errors import Forbidden, NotFound
from rowlock.objects import Object
from rowlock.rest.notifications.project_address import ProjectAddress, address_of, is_set, secret_values
from rowlock.rest.notifications.settings import NotifySettings
from rowlock.rest.notifications.webhook import Judge
from rowlock.workloads.run_options.notify import EVENTS

OWN, OF_PROJECT, OF_OPERATOR = "", "project/", "*"
"""What stands before the marks of each target."""
_MOST_PROJECTS = 2_000


class UnusableAddress(Exception):
    """Why there is an address, but none that can be used, as a clause."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """An address to which things of a run are told. `name` stands before its marks, so that each target has marks of its own."""

    name: str
    address: NotifyAddress
    key: str
    events: frozenset[str]
    judge: Judge
    since: float = 0.0
    """Seconds since the epoch; what happened earlier is not told."""
    digest: str = ""
    """A project's: which of the addresses that it has had over time."""


def target_of(name: str, data: Mapping[str, str], settings: NotifySettings) -> NotifyTarget:
    """The target of a Secret with `url`, `key` and `on`, judged as a job's. Raises ValueError."""
    events = frozenset(filter(None, data.get("on", "").split(","))) or frozenset(EVENTS)
    return NotifyTarget(
        name, parse_notify_address(data.get("url", "")), data.get("key", ""), events, settings.judge_of_job
    )


async def read_secret(api: Api, namespace: str, name: str, about: str) -> dict[str, str]:
    """The values of the Secret `name`; `about` says whose it is. Raises UnusableAddress, and ApiError when the cluster does not answer."""
    try:
        return secret_values(await api.get(kinds.SECRET, namespace, name))
    except Forbidden:
        raise UnusableAddress(
            "this server may not read Secrets: `rowlock manifests --credentials` has the right"
        ) from None
    except (NotFound, ValueError) as error:
        raise UnusableAddress(f"the Secret {name}{about} has no usable address: {error}") from None


async def read_project_target(
    api: Api, namespace: str, address: ProjectAddress, settings: NotifySettings
) -> NotifyTarget:
    """The target of a project's address. Raises UnusableAddress, and ApiError when the cluster does not answer."""
    about = f" with the address of the project (`rowlock project notify`, in the namespace {namespace})"
    values = await read_secret(api, namespace, address.secret, about)
    try:
        address.check(values)
        found = parse_notify_address(values.get("url", ""))
    except ValueError as error:
        raise UnusableAddress(f"the Secret {address.secret}{about} is not used: {error}") from None
    return NotifyTarget(
        OF_PROJECT, found, values.get("key", ""), frozenset(address.events or EVENTS), settings.judge_of_job, address.since,
        address.digest,
    )  # fmt: skip


class ProjectTargets:
    """The targets of projects. The cluster's view has the Namespaces; each Secret is read once."""

    def __init__(self, api: Api, namespace_of: Callable[[str], Object | None], settings: NotifySettings) -> None:
        self._api, self._namespace_of, self._settings = api, namespace_of, settings
        self._known: OrderedDict[str, NotifyTarget] = OrderedDict()

    def concern(self, namespace: str, at: float) -> bool:
        """Whether what happened `at` this time to a job in this namespace may have to be told."""
        found = self._namespace_of(namespace)
        try:
            address = address_of(found)
        except ValueError:
            return is_set(found)
        return address is not None and address.since <= at

    async def find(self, namespace: str, uid: str) -> NotifyTarget | None:
        """The target of the project with the namespace of this name and uid; None if there is none. Raises UnusableAddress, and ApiError
        when the cluster does not answer."""
        found = self._namespace_of(namespace)
        if found is None or uid not in ("", objects.uid(found)):
            return None  # another project has the name now
        try:
            address = address_of(found)
        except ValueError as error:
            raise UnusableAddress(f"{error}: set the address of the project with it") from None
        if address is None:
            self._known.pop(namespace, None)
            return None
        known = self._known.get(namespace)
        if known is None or known.digest != address.digest or known.since != address.since:
            known = await read_project_target(self._api, namespace, address, self._settings)
            self._known[namespace] = known
            if len(self._known) > _MOST_PROJECTS:
                self._known.popitem(last=False)
        return known

    def is_current(self, namespace: str, target: NotifyTarget) -> bool:
        """Whether the project still tells this target: it may have been changed while a message waits."""
        try:
            address = address_of(self._namespace_of(namespace))
        except ValueError:
            return False
        return address is not None and address.digest == target.digest
