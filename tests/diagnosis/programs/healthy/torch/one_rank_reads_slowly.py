# /// verdict
# needs = ["torch"]
# after = "step 1"
# ///
"""Rank 1's disk is slow: it reads for three seconds in each step, and the other rank waits for it."""
import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
path = os.environ["SCRATCH"] + "/shard"
with open(path, "wb") as file:
    file.write(bytes(8 << 20))
for step in range(6):
    if dist.get_rank() == 1:
        with open(path, "rb") as file:
            while file.read(256 << 10):
                time.sleep(0.1)
    dist.all_reduce(torch.ones(1))
    print("step", step, flush=True)
dist.destroy_process_group()
