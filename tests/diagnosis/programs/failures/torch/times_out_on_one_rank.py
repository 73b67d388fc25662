# /// verdict
# needs = ["torch"]
# who = ["rank 0"]
# says = ["rank 0", ["imed out", "imeout"]]
# ///
"""Rank 0's collective has a limit of four seconds; rank 1 sleeps for longer, and is ended with the job."""
import datetime
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
group = dist.new_group(timeout=datetime.timedelta(seconds=4))
dist.barrier()
if dist.get_rank() == 1:
    time.sleep(90)
dist.all_reduce(torch.ones(1), group=group)
