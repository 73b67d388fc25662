# /// verdict
# needs = ["torch"]
# who = ["rank 0", "rank 1"]
# says = ["ProcessGroupNCCL", "{here}"]
# ///
"""The back end needs GPUs."""
import torch.distributed as dist

dist.init_process_group("nccl")  # here
