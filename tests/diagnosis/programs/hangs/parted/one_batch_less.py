# /// verdict
# needs = ["torch"]
# after = "epoch is over"
# who = ["rank 0", "rank 1"]
# says = ["barrier", "rank 1", "{here}"]
# never = ["message between them was lost"]
# ///
"""Uneven data without `Join`: rank 1 has a batch less, and waits in a barrier while rank 0 is in its backward pass."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
for _ in range(5 - dist.get_rank()):
    model(torch.randn(2, 4)).sum().backward()
print("the epoch is over", flush=True)
dist.barrier()  # here
