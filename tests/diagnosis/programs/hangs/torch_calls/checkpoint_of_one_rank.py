# /// verdict
# needs = ["torch"]
# after = "step 2"
# who = ["rank 0", "rank 1"]
# says = ["different collectives", "{here}", "{there}"]
# never = ["message between them was lost"]
# ///
"""Only rank 0 calls torch's distributed checkpoint, in which all must take part; rank 1 is in the next step's all_reduce."""
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint

dist.init_process_group("gloo")
state = {"weight": torch.ones(4)}
for step in range(3):
    print("step", step, flush=True)
    dist.all_reduce(state["weight"])
if dist.get_rank() == 0:
    checkpoint.save(state, checkpoint_id=os.environ["SCRATCH"] + "/c")  # there
dist.all_reduce(state["weight"])  # here
