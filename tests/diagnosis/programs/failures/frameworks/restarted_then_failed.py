# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# policy = "Never"
# command = "torchrun --nnodes 2 --nproc-per-node 1 --max-restarts 1 --rdzv-backend c10d --rdzv-endpoint $(MASTER_ADDR):29400 {program}"
# who = ["rank 0", "rank 1"]
# says = ["ValueError: checkpoint is torn", "{here}"]
# ///
"""torchrun starts the ranks once more, and one fails again."""
import os

import torch.distributed as dist

dist.init_process_group("gloo")
if os.environ["GROUP_RANK"] == "1":
    raise ValueError("checkpoint is torn")  # here
dist.barrier()
