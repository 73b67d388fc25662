# /// verdict
# needs = ["torch"]
# after = "sharded"
# who = ["rank 1"]
# says = ["rank 1 keeps the others waiting", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 0 gathers a sharded weight to print it; rank 1 does not, and waits for a condition that nobody notifies."""
import threading

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
weight = distribute_tensor(torch.ones(8, 4), init_device_mesh("cpu", (2,)), [Shard(0)])
print("sharded", flush=True)
if dist.get_rank() == 0:
    print(weight.full_tensor().norm())
changed = threading.Condition()
with changed:
    changed.wait()  # here
