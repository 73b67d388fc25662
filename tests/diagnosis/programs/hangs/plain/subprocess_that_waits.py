# /// verdict
# needs = ["torch"]
# after = "converting"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 waits for a program that reads a pipe into which nobody writes; rank 0 waits in a gather."""
import subprocess

import torch.distributed as dist

dist.init_process_group("gloo")
print("converting", flush=True)
if dist.get_rank() == 1:
    subprocess.Popen(["cat"], stdin=subprocess.PIPE).wait()  # here
dist.all_gather_object([None, None], dist.get_rank())
