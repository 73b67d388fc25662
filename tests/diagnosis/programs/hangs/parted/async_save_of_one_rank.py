# /// verdict
# needs = ["torch"]
# after = "saving"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""FSDP2 with an asynchronous checkpoint: rank 1 waits for a signal and never calls it; rank 0 waits for the future of its own call."""
import os
import threading

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))
dist.barrier()
if dist.get_rank() == 1:
    threading.Event().wait()  # here
print("saving", flush=True)
checkpoints.async_save(model.state_dict(), checkpoint_id=f"{os.environ['SCRATCH']}/save").result()
