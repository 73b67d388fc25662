# /// verdict
# needs = ["torch"]
# ranks = 3
# after = "epoch end"
# who = ["rank 2"]
# says = ["different collectives", "rank 2", "barrier", "all_reduce"]
# never = ["message between them was lost"]
# ///
"""Rank 2 has no validation data and goes on to the barrier, while the others average their losses."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("epoch end", flush=True)
if dist.get_rank() != 2:
    dist.all_reduce(torch.ones(1))
dist.barrier()
if dist.get_rank() == 2:
    dist.all_reduce(torch.ones(1))
