# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 3
# after = "joining"
# everyone = true
# says = ["rendezvous is not complete", "rank 2 expects 4", "rank 0 expects 3"]
# never = ["message between them was lost"]
# ///
"""Rank 2 was configured for a larger job."""
import os

import torch.distributed as dist

if os.environ["RANK"] == "2":
    os.environ["WORLD_SIZE"] = "4"
print("joining", flush=True)
dist.init_process_group("gloo")
