# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# after = "joining"
# who = ["rank 1"]
# says = ["rank 1", "ended with exit code 0", "init_process_group"]
# never = ["message between them was lost", "rank 0 keeps"]
# short = true
# ///
"""Rank 1 has nothing to do, it thinks, and goes home; rank 0 waits for it to join."""
import os
import sys

import torch.distributed as dist

if os.environ["RANK"] == "1":
    print("no data for this rank", flush=True)
    sys.exit(0)
print("joining", flush=True)
dist.init_process_group("gloo")
