# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# ranks = 1
# command = "torchrun --standalone --nproc-per-node 2 {program}"
# who = ["rank 0", "rank 1"]
# says = ["the tokenizer has no padding token"]
# never = ["SIGTERM"]
# ///
"""A local rank of torchrun leaves with a sentence, not with an exception."""
import sys

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    sys.exit("the tokenizer has no padding token")
dist.barrier()
