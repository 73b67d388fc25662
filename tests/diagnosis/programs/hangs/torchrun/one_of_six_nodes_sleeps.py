# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 6
# command = "sh -c 'exec torchrun --nnodes 6 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:29400 {program}'"
# after = "sleeps"
# who = ["rank 3"]
# says = ["rank 3", "{here}", "5 ranks wait in all_reduce"]
# never = ["message between them was lost"]
# ///
"""Six torchruns keep each other alive, and the pod that holds their store hears from all. One rank sleeps; the others wait for it."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 3:
    print("sleeps", flush=True)
    time.sleep(600)  # here
dist.all_reduce(torch.ones(1))
