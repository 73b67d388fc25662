# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# after = "joining"
# everyone = true
# who = ["rank 1"]
# says = ["rendezvous is not complete", "trainer-0.old-cluster", "does not resolve"]
# never = ["message between them was lost"]
# ///
"""The configuration of rank 1 is that of another cluster."""
import os

import torch.distributed as dist

if os.environ["RANK"] == "1":
    os.environ["MASTER_ADDR"] = "trainer-0.old-cluster"
print("joining", flush=True)
dist.init_process_group("gloo")
