# /// verdict
# needs = ["torch"]
# who = ["rank 0", "rank 1"]
# says = ["eth7", "{here}"]
# env = {GLOO_SOCKET_IFNAME = "eth7"}
# ///
"""GLOO_SOCKET_IFNAME names an interface that is not there."""
import torch.distributed as dist

dist.init_process_group("gloo")  # here
