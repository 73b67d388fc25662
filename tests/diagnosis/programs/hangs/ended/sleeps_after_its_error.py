# /// verdict
# needs = ["torch"]
# after = "for debugging"
# who = ["rank 0"]
# says = ["rank 0", "ZeroDivisionError: division by zero"]
# never = ["rank 1 keeps", "rank 1 (pod", "message between them was lost"]
# ///
"""Rank 0 prints its error and keeps its pod, so that somebody may look; rank 1 waits."""
import time
import traceback

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(2)
dist.all_reduce(total)
try:
    if dist.get_rank() == 0:
        1 / 0
except ZeroDivisionError:
    traceback.print_exc()
    print("the pod stays for debugging", flush=True)
    time.sleep(3600)
dist.all_reduce(total)
