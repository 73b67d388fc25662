# /// verdict
# needs = ["torch"]
# after = "press"
# who = ["rank 0"]
# says = ["rank 0", "{here}"]
# never = ["rank 1 keeps"]
# ///
"""Rank 0 reads from a pipe that stays open and empty, as a prompt does; rank 1 waits in broadcast."""
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    end, other = os.pipe()
    print("press return to go on", flush=True)
    os.fdopen(end).readline()  # here
dist.broadcast(torch.ones(1), src=0)
