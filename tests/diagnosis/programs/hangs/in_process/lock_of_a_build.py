# /// verdict
# needs = ["torch"]
# after = "building"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""An earlier build of an extension was killed and left its lock file: torch's baton waits for ever, looking ten times a second."""
import os

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton

dist.init_process_group("gloo")
lock = os.environ["SCRATCH"] + "/lock"
if dist.get_rank() == 1:
    open(lock, "w").close()
    print("building", flush=True)
    FileBaton(lock).wait()  # here
dist.broadcast(torch.ones(3), src=1)
