# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# who = ["rank 1"]
# says = ["rank 1", "SIGKILL", "lost it"]
# short = true
# ///
"""Rank 1 is killed; rank 0 then loses its connection, and says so."""
import os
import signal
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(2)
for step in range(100):
    dist.all_reduce(total)
    if step == 3 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.1)
