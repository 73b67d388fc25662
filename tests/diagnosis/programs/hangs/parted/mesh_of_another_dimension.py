# /// verdict
# needs = ["torch"]
# ranks = 4
# after = "reducing"
# everyone = true
# who = ["rank 2", "rank 3"]
# says = ["rank 3", "{here}"]
# never = ["rank 0 keeps", "rank 1 keeps", "message between them was lost"]
# ///
"""A mesh of two by two: rank 3 reduces along the other dimension than its neighbour; the first two are done and wait in a barrier."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
print("reducing", flush=True)
if dist.get_rank() == 3:
    dist.all_reduce(torch.ones(1), group=mesh.get_group("dp"))  # here
dist.all_reduce(torch.ones(1), group=mesh.get_group("tp"))
dist.barrier()
