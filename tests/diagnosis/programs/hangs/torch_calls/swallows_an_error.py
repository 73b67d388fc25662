# /// verdict
# needs = ["torch"]
# ranks = 3
# after = "skipped"
# who = ["rank 1"]
# says = ["rank 1", "barrier", "all_reduce", "{there}"]
# never = ["message between them was lost"]
# ///
"""Rank 1 catches the error of a bad batch, goes on with the next one, and so leaves out one collective."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
for step in range(3):
    try:
        if step == 2 and dist.get_rank() == 1:
            raise ValueError("image 4711 is truncated")
        dist.all_reduce(torch.ones(2))
    except ValueError as error:
        print("skipped", error, flush=True)
dist.barrier()  # there
