# /// verdict
# needs = ["torch"]
# after = "step 2"
# who = ["rank 0"]
# says = ["rank 0", "{here}", "{wait}"]
# never = ["rank 1 keeps", "message between them was lost"]
# ///
"""Rank 1 waits for the work of an asynchronous all_reduce that rank 0 never begins."""
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(8)
for step in range(3):
    dist.all_reduce(total, async_op=True).wait()
    print(f"step {step}", flush=True)
if dist.get_rank() == 0:
    threading.Event().wait()  # here
dist.all_reduce(total, async_op=True).wait()  # wait
