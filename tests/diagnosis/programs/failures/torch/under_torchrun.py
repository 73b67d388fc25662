# /// verdict
# needs = ["torch"]
# ranks = 2
# nproc = 2
# who = ["rank 3"]
# says = ["rank 3", "OverflowError: token id 70000", "{here}"]
# ///
"""Four ranks under two torchruns; the last one fails, the agents say so and end the rest."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(20):
    if step == 3 and dist.get_rank() == 3:
        raise OverflowError("token id 70000")  # here
    dist.all_reduce(torch.ones(1))
