# /// verdict
# needs = ["torch"]
# after = "compressing"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 writes into the pipe of a program that reads nothing."""
import subprocess

import torch.distributed as dist

dist.init_process_group("gloo")
print("compressing", flush=True)
if dist.get_rank() == 1:
    program = subprocess.Popen(["sleep", "900"], stdin=subprocess.PIPE)
    program.stdin.write(b"x" * (1 << 20))  # here
dist.barrier()
