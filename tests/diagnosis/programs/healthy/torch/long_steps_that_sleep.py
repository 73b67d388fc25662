# /// verdict
# needs = ["torch"]
# after = "round 2"
# ///
"""Each round waits seven seconds for an environment that is elsewhere; the rounds come as regularly as before."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for round in range(6):
    time.sleep(7)
    dist.all_reduce(torch.ones(1))
    print("round", round, flush=True)
dist.destroy_process_group()
