# /// verdict
# needs = ["torch"]
# after = "rank 1 begins"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 0 has locked a part of the index with POSIX locks and waits in a collective; rank 1 waits for that part."""
import fcntl
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
index = open(os.environ["SCRATCH"] + "/index", "w+")
if dist.get_rank() == 0:
    fcntl.lockf(index, fcntl.LOCK_EX, 100)
dist.barrier()
print(f"rank {dist.get_rank()} begins", flush=True)
if dist.get_rank() == 1:
    fcntl.lockf(index, fcntl.LOCK_EX, 10, 50)  # here
dist.broadcast(torch.ones(2), src=0)
dist.all_reduce(torch.ones(2))
