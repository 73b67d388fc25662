# /// verdict
# needs = ["torch"]
# after = "step 2"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""FSDP2: rank 1 stops before the forward pass of step 3, so rank 0 waits while it gathers parameters."""
import threading

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
mesh = torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
ready = threading.Semaphore(0)
for step in range(5):
    if step == 3 and dist.get_rank() == 1:
        ready.acquire()  # here
    model(torch.randn(8, 16)).sum().backward()
    print(f"step {step}", flush=True)
