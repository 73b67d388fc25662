# /// verdict
# needs = ["torch"]
# who = ["rank 0"]
# start = "PyTorchJob"
# ranks = 1
# says = ["DistStoreError", "1/2 clients joined", "{here}"]
# never = ["lost it"]
# ///
"""It waits six seconds for a second rank that nobody started."""
import os
from datetime import timedelta

import torch.distributed as dist

os.environ["WORLD_SIZE"] = "2"
dist.init_process_group("gloo", timeout=timedelta(seconds=6))  # here
