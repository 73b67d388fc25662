"""One real node: containerd, runc, a bridge network, CoreDNS and a kubelet. Needs root and Debian's packages.

Not here yet: `up --kubelet` says so instead of pretending.
"""

from control_plane import Plane
from recipe import Missing


def start_node(plane: Plane) -> None:
    raise Missing("--kubelet is not supported yet: use the cluster without a node, and patch the status of pods")
