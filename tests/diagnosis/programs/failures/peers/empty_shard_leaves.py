# /// verdict
# needs = ["torch"]
# ranks = 3
# who = ["rank 2"]
# says = ["rank 2", "exit code 1", "no files for rank 2 of 3 in /data/train"]
# ///
"""Rank 2 leaves with a sentence; the others lose it in all_reduce."""
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 2:
    sys.exit("no files for rank 2 of 3 in /data/train")
for _ in range(20):
    dist.all_reduce(torch.ones(2))
