# /// verdict
# needs = ["torch"]
# ranks = 1
# nproc = 2
# who = ["rank 1"]
# says = ["rank 1", "SIGKILL"]
# ///
"""torchrun says which of its ranks died of a signal."""
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(20):
    if step == 3 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))
