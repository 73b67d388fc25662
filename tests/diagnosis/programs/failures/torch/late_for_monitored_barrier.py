# /// verdict
# needs = ["torch"]
# ranks = 3
# who = ["rank 0"]
# says = ["Rank 1 failed to pass monitoredBarrier in 3000 ms"]
# never = ["rank 2 (pod", "no rank logged an error of its own"]
# ///
"""Rank 1 comes too late to a barrier that names who is missing: rank 0 knows it, and the others lose rank 0."""
import datetime
import time

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(30)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=3))
