# /// verdict
# needs = ["torch"]
# after = "step 1"
# ///
"""Batches come from a pool of threads that wait for a slow disk; the main threads wait for them, and say little."""
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


def load(step):
    time.sleep(1.5 if dist.get_rank() == step % 2 else 0.2)
    return torch.ones(200)


dist.init_process_group("gloo")
with ThreadPoolExecutor(1) as pool:
    for step in range(14):
        batch = pool.submit(load, step).result()
        dist.all_reduce(batch)
        if dist.get_rank() == 0 and step % 5 == 1:
            print("step", step, flush=True)
