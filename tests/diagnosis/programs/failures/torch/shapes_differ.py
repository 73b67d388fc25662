# /// verdict
# needs = ["torch"]
# ranks = 2
# who = ["rank 1"]
# says = ["rank 1", "shape '[4, 8]' is invalid", "{here}"]
# ///
"""The last batch of rank 1 is smaller than its code believes; rank 0 loses its peer in the backward pass."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(6):
    rows = torch.randn(3 if step == 4 and dist.get_rank() == 1 else 4, 8)
    rows = rows.view(4, 8)  # here
    model(rows).sum().backward()
