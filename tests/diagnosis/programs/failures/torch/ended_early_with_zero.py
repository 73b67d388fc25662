# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# who = ["rank 1"]
# says = ["rank 1", "ended with exit code 0"]
# never = ["the logs do not say why"]
# ///
"""Rank 1 has fewer batches than rank 0 and ends well; rank 0 loses its connection in the step after."""
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4)
for step in range(3):
    dist.all_reduce(total)
    print(f"step {step}", flush=True)
if dist.get_rank() == 1:
    os._exit(0)
dist.all_reduce(total)
