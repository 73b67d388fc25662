# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 2
# command = "sh -c 'exec torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:29400 {program}'"
# after = "rank 0 is done"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps"]
# ///
"""Each pod has a torchrun. Rank 0 has finished, and its torchrun waits for the other one; rank 1 sleeps in the code that follows the training."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    time.sleep(600)  # here
print("rank 0 is done", flush=True)
