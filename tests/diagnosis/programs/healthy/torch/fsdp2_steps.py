# /// verdict
# needs = ["torch"]
# after = "step 2"
# ///
"""FSDP2 that trains, with half a second of data loading in each step."""
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
mesh = torch.distributed.init_device_mesh("cpu", (dist.get_world_size(),))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(24):
    time.sleep(0.5)
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    print(f"step {step}", flush=True)
dist.destroy_process_group()
