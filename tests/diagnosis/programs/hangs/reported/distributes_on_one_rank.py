# /// verdict
# needs = ["torch"]
# after = "sharding"
# who = ["rank 0", "rank 1"]
# says = ["{here}", "barrier"]
# never = ["message between them was lost"]
# ///
"""Only rank 0 distributes a tensor over the mesh, which all ranks must do; rank 1 is in the barrier."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

mesh = init_device_mesh("cpu", (2,))
dist.barrier()
print("sharding", flush=True)
if dist.get_rank() == 0:
    distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])  # here
dist.barrier()
