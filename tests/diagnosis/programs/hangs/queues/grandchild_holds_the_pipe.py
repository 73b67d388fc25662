# /// verdict
# needs = ["torch"]
# after = "asks git"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 reads what a command prints until its end. The command is over, but a daemon that it left behind holds the pipe."""
import subprocess

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    print("asks git", flush=True)
    subprocess.run(["sh", "-c", "sleep 600 & echo main"], stdout=subprocess.PIPE)  # here
dist.barrier()
