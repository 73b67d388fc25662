# /// verdict
# needs = ["torch"]
# who = ["rank 0", "rank 1"]
# says = ["CheckpointException", ["No such file or directory", "FileNotFoundError"], "step_900"]
# ///
"""torch.distributed.checkpoint gathers the errors of all ranks into one."""
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
dcp.load({"weight": torch.zeros(4)}, checkpoint_id=os.environ["SCRATCH"] + "/step_900")
