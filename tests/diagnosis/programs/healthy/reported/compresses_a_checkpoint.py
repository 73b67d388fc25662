# /// verdict
# needs = ["torch"]
# after = "saving"
# ///
"""Rank 0 writes its checkpoint through a program that compresses it, for 25 seconds; rank 1 waits in the barrier."""
import os
import subprocess
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 0:
    print("saving", flush=True)
    with open(os.environ["SCRATCH"] + "/state.gz", "wb") as file:
        pack = subprocess.Popen(["gzip", "-9"], stdin=subprocess.PIPE, stdout=file)
        end = time.monotonic() + 25
        while time.monotonic() < end:
            pack.stdin.write(os.urandom(1 << 20))
        pack.stdin.close()
        pack.wait()
    os.remove(os.environ["SCRATCH"] + "/state.gz")
dist.barrier()
dist.destroy_process_group()
