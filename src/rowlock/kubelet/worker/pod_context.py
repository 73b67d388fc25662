"""What this node provides to one pod: the same for all its containers and volumes, computed once a turn.

Addresses, the API server and its tokens, the proxy, the other pods of the job. Everything else that a container gets follows
from these values, the pod's spec and the image (`starting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from rowlock import kinds
from rowlock.api import View
from rowlock.kubelet.network.pod_network import PodNetwork
from rowlock.kubelet.node.machine import NodePlan
from rowlock.kubelet.node.node_context import NodeContext
from rowlock.kubelet.pod.directory import PodCard
from rowlock.kubelet.pod.spec import PodSpec
from rowlock.kubelet.volumes.account_tokens import PodTokens
from rowlock.kubelet.worker.environment import EnvironmentContext
from rowlock.objects import Key, name, namespace

PROXY_URL = "http://10.77.0.1:3128"
MAX_NO_PROXY_PEERS = 128
"""Pods of a job that no_proxy lists; HTTP to the others goes through the proxy."""


@dataclass(frozen=True, slots=True)
class PodContext:
    """One pod on this node, at one moment."""

    pod: PodSpec
    card: PodCard
    node: NodePlan
    has_own_address: bool
    """Whether the pod has an address, names and ports of its own."""
    has_token: bool
    """Whether its containers see the token that admission adds."""
    environment: EnvironmentContext
    rewrite_hostfile: Callable[[str], str] | None
    """Rewrites an MPI hostfile for a pod without an address of its own; None = the pod has one."""


@dataclass(slots=True)
class _Neighbours:
    """Cache of what pods that start together see of each other: the same for all of a job, though each of a thousand would scan
    all the others."""

    revision: int = -1
    _peers: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _pods_on_node: dict[str, int] = field(default_factory=dict)

    def at(self, revision: int) -> _Neighbours:
        """This cache, emptied if it is of another revision of the view."""
        if revision != self.revision:
            self.revision = revision
            self._peers.clear()
            self._pods_on_node.clear()
        return self

    def peers_of(self, pod: PodSpec, view: View, addresses: Mapping[Key, str]) -> tuple[str, ...]:
        """Names and known addresses of the pods of its job, at most MAX_NO_PROXY_PEERS of them; of the pod alone if it has no owner."""
        if not pod.owner_uid:
            return (pod.name, *filter(None, (addresses.get(Key(pod.namespace, pod.name)),)))
        peers = self._peers.get((pod.namespace, pod.owner_uid))
        if peers is None:
            siblings = (p for p in view.by_owner(kinds.POD, pod.owner_uid) if namespace(p) == pod.namespace)
            names = [name(p) for p in islice(siblings, MAX_NO_PROXY_PEERS)]
            known = (addresses.get(Key(pod.namespace, peer)) for peer in names)
            peers = (*names, *filter(None, known))
            self._peers[pod.namespace, pod.owner_uid] = peers
        return peers

    def count_pods(self, node: str, count: Callable[[str], int]) -> int:
        """Active pods on a node, at least 1."""
        if node not in self._pods_on_node:
            self._pods_on_node[node] = max(1, count(node))
        return self._pods_on_node[node]


@dataclass(frozen=True, slots=True)
class PodContexts:
    """Computes a pod's context from its sources."""

    node: NodeContext
    view: View
    network: PodNetwork
    tokens: PodTokens
    data_directory: str
    """`PodDirectories.identity`."""
    count_active_pods: Callable[[str], int]
    """A node's name → the number of active pods that share its CPUs."""
    _neighbours: _Neighbours = field(default_factory=_Neighbours)

    def find_context(self, pod: PodSpec, card: PodCard) -> PodContext:
        """The pod's context at this moment."""
        plan, has_own_address = self.node.nodes[card.node], self.network.has_own_address(card)
        # without mounts there is no token
        reaches_server = not (self.network.engine_problem if card.contained else self.node.mount_problem)
        has_token = reaches_server and self.tokens.are_wanted(pod)
        has_links = pod.object["spec"].get("enableServiceLinks") is not False
        has_links = has_links and not (card.contained and self.network.engine_problem)
        neighbours = self._neighbours.at(self.view.revision)
        return PodContext(
            pod,
            card,
            plan,
            has_own_address=has_own_address,
            has_token=has_token,
            environment=EnvironmentContext(
                node=card.node,
                pod_ip=card.ip,
                cpus=plan.cpus,
                memory=plan.memory,
                pods_on_node=neighbours.count_pods(card.node, self.count_active_pods),
                proxy=self._proxy_url(contained=card.contained),
                peers=neighbours.peers_of(pod, self.view, self.network.names.pods) if has_own_address else (),
                services=self.network.variables_of_services(pod.namespace, contained=card.contained)
                if has_links
                else {},
                api_server=self.tokens.server_variables(self.network.engine_address if card.contained else "")
                if has_token
                else {},
                data_directory=self.data_directory,
                rewrite=None if has_own_address else partial(self.network.rewrite_environment, pod),
            ),
            rewrite_hostfile=None if has_own_address else partial(self.network.rewrite_hostfile, pod),
        )

    def _proxy_url(self, *, contained: bool) -> str:
        """The pod network's proxy for processes. Engines have their own way out: containers get the machine's proxy, unless on loopback."""
        if not contained:
            return PROXY_URL if self.network.has_namespaces else ""
        env, names = self.node.server_env, ("https_proxy", "HTTPS_PROXY", "http_proxy")
        proxy = next((env[name] for name in names if env.get(name)), "")
        return "" if "//127." in proxy or "//localhost" in proxy else proxy
