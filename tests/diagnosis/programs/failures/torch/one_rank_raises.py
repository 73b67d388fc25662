# /// verdict
# needs = ["torch"]
# who = ["rank 2"]
# ranks = 3
# says = ["rank 2", "IndexError: list index out of range", "{here}"]
# short = true
# ///
"""One of three ranks has a short shard; the others lose their peer."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(2)
shard = list(range(5 if dist.get_rank() == 2 else 50))
for step in range(50):
    total[0] = shard[step]  # here
    dist.all_reduce(total)
