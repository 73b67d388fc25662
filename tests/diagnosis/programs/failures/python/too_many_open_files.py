# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["rank 1", "Too many open files", "{here}"]
# ///
"""Rank 1 opens its shards and closes none; rank 0 loses its peer."""
import resource
import tempfile

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
shards = []
if dist.get_rank() == 1:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    for shard in range(100):
        shards.append(tempfile.TemporaryFile())  # here
dist.all_reduce(torch.ones(1))
