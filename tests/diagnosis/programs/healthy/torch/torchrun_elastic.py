# /// verdict
# needs = ["torch"]
# ranks = 1
# nproc = 2
# after = "step 1"
# ///
"""Two ranks under one torchrun."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(12):
    time.sleep(1)
    dist.all_reduce(torch.ones(1))
    print("step", step, flush=True)
dist.destroy_process_group()
