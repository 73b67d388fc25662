# /// verdict
# needs = ["torch"]
# after = "locked"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps"]
# ///
"""Rank 0 holds the lock of the cache and waits at a barrier, to which rank 1 comes only when it gets the lock."""
import fcntl
import os

import torch.distributed as dist

dist.init_process_group("gloo")
lock = open(os.environ["SCRATCH"] + "/cache.lock", "w")
if dist.get_rank() == 0:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("locked", flush=True)
dist.barrier()
if dist.get_rank() == 1:
    fcntl.flock(lock, fcntl.LOCK_EX)  # here
dist.barrier()
