"""The settings of the kubelet."""

from dataclasses import dataclass
from pathlib import Path

from rowlock import kinds
from rowlock.kubelet.files.log_writer import DEFAULT_LOG_LIMIT
from rowlock.kubelet.node.machine import MAX_PODS, NodeOptions
from rowlock.kubelet.volumes.checkpoints import RETENTION_SECONDS

FOLLOWED_KINDS = frozenset({kinds.POD, kinds.SERVICE, kinds.CONFIG_MAP, kinds.SECRET, kinds.PERSISTENT_VOLUME_CLAIM})
"""Kinds of which a kubelet needs the initial state; of owners of pods it needs to see deletions only."""


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """The settings of the kubelet; None = take the machine as it is."""

    data_dir: Path
    nodes: int = 1
    gpus_per_node: int | None = None
    simulated_gpus: int = 0
    cpus_per_node: float | None = None
    memory_per_node: int | None = None
    node_name: str = ""
    network: str = "auto"
    max_pods: int = MAX_PODS
    """Most pods per node."""
    restart_backoff: float = 10.0
    """Seconds before a second restart; doubles up to thirty times as much."""
    warm_start: bool = True
    """Whether programs that import torch may be forked from a parent that has done so."""
    keep_checkpoints: float = RETENTION_SECONDS
    """Seconds for which a deleted job's checkpoints are kept."""
    log_limit: int = DEFAULT_LOG_LIMIT
    """Bytes of one run's log that are kept; beyond that the oldest fifth is dropped."""
    limits: str = "auto"
    """How memory and CPU limits are enforced: `auto` uses control groups if it can, `watchdog` never does."""
    pids_limit: int = 0
    """The most processes and threads of each container; 0 = no limit of its own."""
    measure: float = 10.0
    """Seconds between measurements of the disk usage of pods with a limit."""
    runtime: str = "auto"
    """`auto` (images of the container engine run in containers, others as processes), `process` or `container`."""
    api_port: int = 0
    """The API server's port on loopback, to which pods are directed; 0 = there is none."""
    host_ports: tuple[int, ...] = ()
    """Ports of this machine's loopback that pods reach as `host.rowlock.internal`."""
    sweep: float = 60.0
    """Seconds between removals of what deleted pods and claims left behind."""

    @property
    def node_options(self) -> NodeOptions:
        return NodeOptions(
            self.nodes,
            self.gpus_per_node,
            self.simulated_gpus,
            self.cpus_per_node,
            self.memory_per_node,
            self.node_name,
            self.max_pods,
        )
