# /// verdict
# needs = ["torch"]
# after = "groups"
# who = ["rank 1"]
# says = ["rank 1", "new_group", "{here}"]
# never = ["message between them was lost"]
# ///
"""Every rank must call new_group, but only rank 0 does; rank 1 goes on to its all_reduce."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("groups", flush=True)
if dist.get_rank() == 0:
    dist.new_group([0, 1])
dist.all_reduce(torch.ones(1))  # here
