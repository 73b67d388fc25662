# /// verdict
# needs = ["torch"]
# ranks = 1
# nproc = 3
# after = "step 2"
# who = ["rank 1"]
# says = ["rank 1", "{here}", "all_reduce"]
# never = ["rank 0 keeps", "rank 2 keeps", "message between them was lost"]
# ///
"""Three ranks in one pod; the second waits for a child of its own."""
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(4)
for step in range(3):
    dist.all_reduce(total)
    print(f"step {step}", flush=True)
if dist.get_rank() == 1:
    if (child := os.fork()) == 0:
        signal.pause()
    os.waitpid(child, 0)  # here
dist.all_reduce(total)
