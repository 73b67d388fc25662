# /// verdict
# needs = ["torch"]
# after = "in step"
# who = ["rank 0", "rank 1"]
# says = ["different collectives", "{here}", "{there}", "recv", "all_reduce"]
# never = ["message between them was lost"]
# ///
"""Rank 0 receives activations from rank 1, which goes on to the all_reduce of the loss without sending them."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(8)
dist.all_reduce(tensor)
print("in step", flush=True)
if dist.get_rank() == 0:
    dist.recv(tensor, src=1)  # there
dist.all_reduce(tensor)  # here
