# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 1
# command = "torchrun --standalone --nproc-per-node 2 --max-restarts 1 {program}"
# who = ["rank 0", "rank 1"]
# says = ["OSError: the mount is stale", "{here}"]
# ///
"""torchrun starts its ranks again after the first error; the second life dies of another."""
import os

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise KeyError("no such table")
    raise OSError("the mount is stale")  # here
dist.barrier()
