# /// verdict
# needs = ["torch"]
# after = "building"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 0 wraps its model, which broadcasts the weights; rank 1 is still at a child process that does not end."""
import subprocess

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("building", flush=True)
if dist.get_rank() == 1:
    subprocess.run(["tail", "-f", "/dev/null"])  # here
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
