# /// verdict
# needs = ["torch"]
# after = "step 4"
# who = ["rank 1"]
# says = ["rank 1", "{here}", "all_reduce"]
# never = ["rank 0 keeps", "rank 0 (pod", "message between them was lost"]
# short = true
# ///
"""Rank 1 sleeps, while rank 0 waits for it in all_reduce."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4)
for step in range(5):
    dist.all_reduce(total)
    print(f"step {step}", flush=True)
if dist.get_rank() == 1:
    time.sleep(600)  # here
dist.all_reduce(total)
