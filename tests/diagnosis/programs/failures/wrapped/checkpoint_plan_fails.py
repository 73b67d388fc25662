# /// verdict
# needs = ["torch"]
# ranks = 3
# who = ["rank 2"]
# says = ["rank 2", "RuntimeError: the scheduler has no state yet", "{here}"]
# ///
"""torch.distributed.checkpoint: the object of one rank cannot give its state. Each rank raises an error that quotes it."""
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class Scheduler:
    def state_dict(self):
        if dist.get_rank() == 2:
            raise RuntimeError("the scheduler has no state yet")  # here
        return {"step": 3}

    def load_state_dict(self, state):
        raise NotImplementedError


dist.init_process_group("gloo")
dcp.save({"model": {"w": torch.ones(4)}, "scheduler": Scheduler()}, checkpoint_id=os.environ["SCRATCH"] + "/step3")
