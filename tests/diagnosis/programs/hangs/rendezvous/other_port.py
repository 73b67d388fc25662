# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# after = "joining"
# everyone = true
# who = ["rank 1"]
# says = ["rendezvous is not complete", "29999"]
# never = ["message between them was lost"]
# ///
"""Rank 1 knocks at a port at which nobody listens."""
import os

import torch.distributed as dist

if os.environ["RANK"] == "1":
    os.environ["MASTER_PORT"] = "29999"
print("joining", flush=True)
dist.init_process_group("gloo")
