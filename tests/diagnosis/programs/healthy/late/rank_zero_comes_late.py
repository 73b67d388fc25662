# /// verdict
# needs = ["torch"]
# ///
"""Rank 0 prepares for a minute before it joins. Rank 1 tries to reach it after longer and longer pauses, so when rank 0 is there at last,
both ranks may be in `init_process_group` for half a minute and do nothing."""
import hashlib
import os
import time

import torch
import torch.distributed as dist

value, end = b"", time.monotonic() + 50 * (os.environ["RANK"] == "0")
while time.monotonic() < end:
    value = hashlib.sha256(value).digest()
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
