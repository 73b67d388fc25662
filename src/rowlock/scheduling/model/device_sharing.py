"""GPUs that NVIDIA's device plugin advertises several times each (time-slicing or MPS), by the labels of GPU feature discovery.

A pod gets one replica of one GPU, whatever it requests: an equal part of the GPU's time and, with MPS, of its memory. The kubelet chooses
the GPU. So on such a node no pod has a whole GPU, and a share is as large as a replica.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowlock.objects import is_digits
from rowlock.scheduling.model.resources import WHOLE_GPU

REPLICAS_LABEL = "nvidia.com/gpu.replicas"
STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
SHARED_RESOURCE = "nvidia.com/gpu.shared"
"""The resource name of replicas if the plugin is configured to rename them (`renameByDefault`)."""
SHARE_ANNOTATION = "rowlock.dev/gpu-share"
BY_DEVICE_PLUGIN = "device-plugin"
"""Value of `SHARE_ANNOTATION` on a pod whose share is one replica: it requests a device, and keeps KAI's annotation for the share."""


def replicas_of(node_labels: Mapping[str, str]) -> int:
    """Number of replicas per GPU of a node with these labels; 1 = GPUs are not shared, or the label is absent."""
    text = node_labels.get(REPLICAS_LABEL, "")
    return max(1, int(text)) if is_digits(text) else 1


def replica_portion(replicas: int) -> int:
    """The size of a replica in hundredths of a GPU; 0 = less than the smallest share."""
    return WHOLE_GPU // replicas


def most_replicas(portion: int) -> int:
    """The largest number of replicas per GPU with which a replica is at least `portion` hundredths of it."""
    return WHOLE_GPU // portion
