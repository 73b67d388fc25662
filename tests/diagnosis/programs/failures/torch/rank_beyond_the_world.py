# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 (pod"]
# ///
"""Rank 1 says that it is rank 5 of 2."""
import os

import torch.distributed as dist

rank = 5 if os.environ["RANK"] == "1" else 0
dist.init_process_group("gloo", rank=rank, world_size=2)  # here
