# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["ValueError: bad shard", "shard 7 of 16"]
# never = ["onnection"]
# ///
"""An error to which a caller has added a note; Python prints it below the message."""
import os

import torch.distributed as dist

dist.init_process_group("gloo")
try:
    if os.environ["RANK"] == "1":
        raise ValueError("bad shard")
except ValueError as error:
    error.add_note("it was shard 7 of 16")
    error.add_note("from s3://data/train")
    raise
dist.barrier()
