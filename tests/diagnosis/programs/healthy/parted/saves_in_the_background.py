# /// verdict
# needs = ["torch"]
# after = "step 0"
# ///
"""FSDP2 with checkpoints in the background: steps go on for as long as the writer is slow, and the last one waits for it."""
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch.distributed.fsdp import fully_shard


class SlowWriter(checkpoints.FileSystemWriter):
    def write_data(self, plan, planner):
        time.sleep(6)
        return super().write_data(plan, planner)


dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))
for step in range(3):
    model(torch.randn(2, 8)).sum().backward()
    path = f"{os.environ['SCRATCH']}/{step}"
    saved = checkpoints.async_save(model.state_dict(), storage_writer=SlowWriter(path))
    print("step", step, flush=True)
    saved.result()
