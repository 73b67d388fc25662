# /// verdict
# needs = ["torch"]
# after = "epoch"
# ///
"""Rank 1 has three times the data of rank 0; with `join` rank 0 serves the collectives of the rest."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
print("epoch", flush=True)
with model.join():
    for _ in range(10 if dist.get_rank() == 0 else 30):
        time.sleep(0.5)
        model(torch.randn(4, 8)).sum().backward()
print("done", flush=True)
dist.destroy_process_group()
