"""The container engine that runs pods: makes what they need in it, and removes what is left of them.

`engine_images.py` decides which pods run in it. All that is made in the engine has the cluster's label; containers that belong
to no live run are removed: after a restart, after a shim was killed, and regularly.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.pod.directory import PodDirectories
from rowlock.kubelet.pod.facts import Problem
from rowlock.kubelet.pod.pod_state import PodState
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.kubelet.pod.unsupported import pod_warnings, unknown_names_warning
from rowlock.kubelet.runtime import engine_spec
from rowlock.kubelet.runtime.engine_gateway import EngineGateway
from rowlock.kubelet.runtime.engine_images import EngineImages
from rowlock.kubelet.runtime.engine_spec import LABEL_PREFIX
from rowlock.kubelet.shim import engine_client
from rowlock.kubelet.shim.engine_client import Engine, EngineError

log = logging.getLogger("rowlock.kubelet")
T = TypeVar("T")
_PREFIXES = tuple(f"10.{number}" for number in range(77, 100))
"""Prefixes of pods' addresses; the first that no other network of the engine uses is taken."""


@dataclass(slots=True)
class ContainerRuntime:
    """The kubelet's side of the container engine."""

    data: Path
    engine_images: EngineImages
    network: PodNetwork
    directories: PodDirectories
    pod_states: Mapping[str, PodState]
    """The kubelet's pods, by uid."""
    gateway: EngineGateway
    _prepared: set[str] = field(default_factory=set)
    _network_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def engine(self) -> Engine | None:
        return self.engine_images.engine

    @property
    def cluster(self) -> str:
        return engine_spec.cluster_id(str(self.data))

    @property
    def network_name(self) -> str:
        """The name of the pods' network in the engine."""
        return f"rowlock-{self.cluster}"

    def unmet_wishes(self, pod: PodSpec, limits_mode: str, *, is_contained: bool) -> list[str]:
        """What the pod requests and does not get here, a sentence each; used by its event, `rowlock check` and every submit."""
        engine, network = self.engine_images.name if is_contained else "", self.network
        problem = network.engine_problem if network.engine_address else ""  # it is not known before the first container
        sentences = pod_warnings(
            pod, limits_mode, engine=engine, engine_problem=problem, has_namespaces=network.has_namespaces
        )
        if not network.has_namespaces and not is_contained:
            commands = [[*c.command, *c.args] for c in pod.containers]
            variables = [variable for c in pod.containers for variable in c.env]
            if names := network.unknown_names(pod.namespace, commands, variables):
                sentences.append(unknown_names_warning(names))
        return sentences

    # ------------------------------------------------------------ what they need

    async def prepare_runtime(self, pod: PodSpec, state: PodState, *, is_starting: bool) -> Problem | None:
        """Before a pod's first program: decides whether it runs as processes or in containers. Before each start of a container: makes
        sure that the engine has what it needs (images, the network, the sandbox's image). Returns the problem, if any."""
        is_undecided = state.is_unstarted() and pod.deletion_time is None
        if not is_undecided and not (is_starting and state.card.contained):
            return None
        await self.engine_images.inspect_images(pod)
        contained = self.engine_images.needs_engine(pod) if is_undecided else state.card.contained
        is_changed = contained != state.card.contained
        if contained and (is_changed or is_starting):
            if self.engine is None:
                return self.engine_images.engine_gone_problem()
            try:
                async with self._network_lock:
                    if prefix := await self._ask(self._make_network, self.engine):
                        self.network.set_engine_prefix(prefix)
                    await self.gateway.wait_until_tried()
                if pod.needs_sandbox:
                    await self._ask(self._make_sandbox_image, self.engine)
            except (EngineError, ValueError) as error:
                self._prepared.clear()
                return Problem("CreateContainerError", str(error))
        if is_changed:
            if contained:
                address = self.network.container_address(state.card.uid, host_network=pod.host_network)
            else:
                address = self.network.address(state.card.uid)
            state.card = replace(state.card, contained=contained, ip=address)
            self.directories.write_card(state.card)
            self.network.write_hosts()
        return None

    async def _ask(self, function: Callable[..., T], client: Engine, *args: object) -> T:
        """Calls `function` in a thread for engine calls. Raises EngineError, also while the engine does not answer."""
        return await self.engine_images.calls.run(client, function, client, *args)

    def _make_network(self, client: Engine) -> str:
        """The prefix of the pods' network, which exists then; "" = it was made before."""
        if "network" in self._prepared:
            return ""
        subnet = self._existing_subnet(client)
        for prefix in () if subnet else _PREFIXES:
            pool = {"Subnet": f"{prefix}.0.0/16", "Gateway": f"{prefix}.0.1"}
            body = {"Name": self.network_name, "Driver": "bridge", "CheckDuplicate": True, "IPAM": {"Config": [pool]}}
            body["Labels"] = {f"{LABEL_PREFIX}cluster": self.cluster, f"{LABEL_PREFIX}data": str(self.data)}
            try:
                client.request("POST", "/networks/create", body)
                subnet = pool["Subnet"]
                break
            except EngineError as error:
                if not any(word in str(error).lower() for word in ("overlap", "already used", "conflict")):
                    raise
        if not subnet:
            raise ValueError("every network from 10.77.0.0/16 to 10.99.0.0/16 is taken in the container engine")
        self._prepared.add("network")
        return ".".join(subnet.split(".")[:2])

    def _existing_subnet(self, client: Engine) -> str:
        """The subnet of the pods' network; "" = the network does not exist."""
        try:
            return str(client.request("GET", f"/networks/{self.network_name}")["IPAM"]["Config"][0]["Subnet"])
        except EngineError as error:
            if error.status == 404:
                return ""
            raise

    def _make_sandbox_image(self, client: Engine) -> None:
        if "sandbox" in self._prepared:
            return
        try:
            client.request("GET", f"/images/{engine_spec.SANDBOX_IMAGE}/json")
        except EngineError as error:
            if error.status != 404:
                raise
            from rowlock.kubelet.runtime import pause  # seldom needed: keeps tarfile out of every start

            repository, _, tag = engine_spec.SANDBOX_IMAGE.rpartition(":")
            path = f"/images/create?fromSrc=-&repo={repository}&tag={tag}"
            arch = str((client.request("GET", "/version") or {}).get("Arch", ""))
            client.request("POST", path, pause.archive(arch))
        self._prepared.add("sandbox")

    # ------------------------------------------------------------ tidiness

    async def remove_pod(self, pod: str) -> None:
        """Removes everything that the engine has of a deleted pod."""
        if self.engine is not None:
            with contextlib.suppress(EngineError):  # the next garbage collection removes it
                await self._ask(self._remove_pod, self.engine, pod)

    def _remove_pod(self, client: Engine, pod: str) -> None:
        with contextlib.suppress(EngineError):
            for row in _list_labelled(client, "/containers/json?all=1", f"{LABEL_PREFIX}pod={pod}"):
                self._delete_path(client, f"/containers/{row['Id']}?force=1&v=1")
            for row in (_list_labelled(client, "/volumes?", f"{LABEL_PREFIX}pod={pod}") or {}).get("Volumes") or ():
                self._delete_path(client, f"/volumes/{row['Name']}?force=1")

    def _delete_path(self, client: Engine, path: str) -> None:
        with contextlib.suppress(EngineError):  # already removed
            client.request("DELETE", path)

    async def remove_orphans(self) -> None:
        """Removes containers of this cluster that belong to no live run or active pod."""
        if self.engine is None:
            return
        with contextlib.suppress(EngineError):
            label = f"{LABEL_PREFIX}cluster={self.cluster}"
            rows = await self._ask(_list_labelled, self.engine, "/containers/json?all=1", label)
            for identifier in engine_spec.orphan_ids(rows, *self._live_runs()):
                log.info("container %s, which nobody looks after, is removed", identifier[:12])
                await self._ask(self._delete_path, self.engine, f"/containers/{identifier}?force=1&v=1")

    def _live_runs(self) -> tuple[set[tuple[str, str, str]], set[str]]:
        """(pod, container, run) of all live runs, and the uids of unfinished pods."""
        runs = set()
        for pod, state in self.pod_states.items():
            for container, facts in state.containers.items():
                numbers = (facts.asked, facts.run.number if facts.run is not None else None) if facts.is_alive else ()
                runs |= {(pod, container, str(number)) for number in numbers if number is not None}
        return runs, {pod for pod, state in self.pod_states.items() if not state.finished}

    def close(self) -> None:
        """Removes the network if nothing is in it any more, with a short timeout, so that a slow engine does not delay the shutdown."""
        if self.engine is not None:
            with contextlib.suppress(EngineError):
                self.engine.request("DELETE", f"/networks/{self.network_name}", timeout=engine_client.PROBE)
        self.engine_images.calls.close()


def _list_labelled(client: Engine, path: str, label: str) -> Any:
    return client.request("GET", f"{path}&filters={quote(json.dumps({'label': [label]}))}")
