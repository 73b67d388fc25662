# /// verdict
# needs = ["torch"]
# after = "step 1"
# who = ["rank 1"]
# says = ["rank 1 is stopped by a signal", "kill -CONT"]
# short = true
# ///
"""Somebody stops rank 1 with SIGSTOP."""
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(2)
for step in range(2):
    dist.all_reduce(total)
    print(f"step {step}", flush=True)
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
dist.all_reduce(total)
