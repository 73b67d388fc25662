# /// verdict
# needs = ["torch"]
# after = "step 1"
# ///
"""Each round a thread of rank 0 fails to upload and says so with a traceback, as trackers do; the training goes on, slowly and quietly."""
import threading
import time

import torch
import torch.distributed as dist


def upload():
    raise ConnectionError("the tracker does not answer")


dist.init_process_group("gloo")
for step in range(4):
    if dist.get_rank() == 0:
        threading.Thread(target=upload).start()
    dist.all_reduce(torch.ones(1))
    print("step", step, flush=True)
    end = time.monotonic() + 8
    while time.monotonic() < end:
        torch.randn(64, 64) @ torch.randn(64, 64)
dist.destroy_process_group()
