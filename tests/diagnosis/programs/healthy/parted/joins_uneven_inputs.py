# /// verdict
# needs = ["torch"]
# after = "begins"
# ///
"""Uneven data with `Join`: rank 0 has eight batches more, one a second; rank 1 shadows its collectives."""
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
print("begins", flush=True)
with Join([model]):
    for _ in range(12 if dist.get_rank() == 0 else 4):
        model(torch.randn(2, 4)).sum().backward()
        time.sleep(1)
dist.barrier()
