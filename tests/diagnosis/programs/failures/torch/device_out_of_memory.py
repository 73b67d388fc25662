# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["rank 1", "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "{here}"]
# ///
"""What torch raises when a card is full, raised by hand."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.1 GiB free.")  # here
dist.all_reduce(torch.ones(1))
