# /// verdict
# needs = ["torch"]
# after = "group"
# who = ["rank 0", "rank 1"]
# says = ["different collectives", "{here}", "{there}", "new_group"]
# never = ["message between them was lost"]
# ///
"""Rank 0 alone makes a new group, for which all must call; rank 1 waits in the next barrier."""
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("group", flush=True)
if dist.get_rank() == 0:
    dist.new_group([0, 1])  # there
dist.barrier()  # here
