"""GPUs that NVIDIA's device plugin announces several times each (time-slicing or MPS), as the labels of GPU feature discovery tell.

A pod gets one replica of one card, whatever it asks for: an equal part of the card's time, and with MPS of its memory. Which card
it is the kubelet decides. So on such a node nobody has a whole GPU, and a share is as large as the node's replicas are.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowlock.objects import is_digits
from rowlock.scheduling.model.resources import WHOLE_GPU

REPLICAS_LABEL = "nvidia.com/gpu.replicas"
STRATEGY_LABEL = "nvidia.com/gpu.sharing-strategy"
SHARED_RESOURCE = "nvidia.com/gpu.shared"
"""The name of the replicas where the plugin is told to rename them (`renameByDefault`)."""
SHARE_ANNOTATION = "rowlock.dev/gpu-share"
BY_DEVICE_PLUGIN = "device-plugin"
"""Its value on a pod whose share is one replica: it asks for that as a device, and for a share in KAI's words."""


def replicas_of(node_labels: Mapping[str, str]) -> int:
    """How many pods share each card of a node with these labels; 1 = none do, or it does not say."""
    text = node_labels.get(REPLICAS_LABEL, "")
    return max(1, int(text)) if is_digits(text) else 1


def replica_portion(replicas: int) -> int:
    """Hundredths of a card that one of so many replicas is; 0 = it is less than the smallest share."""
    return WHOLE_GPU // replicas


def most_replicas(portion: int) -> int:
    """Into how many replicas a card may be divided so that each is so many hundredths of it: where `replica_portion` is as much."""
    return WHOLE_GPU // portion
