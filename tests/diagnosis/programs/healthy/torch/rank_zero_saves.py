# /// verdict
# needs = ["torch"]
# after = "epoch 1"
# short = true
# ///
"""Rank 0 writes a large checkpoint for half a minute; the others wait for it at a barrier."""
import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("epoch 1", flush=True)
if dist.get_rank() == 0:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        torch.save({"weights": torch.randn(256, 1024)}, os.environ["SCRATCH"] + "/checkpoint.pt")
        time.sleep(0.05)
dist.barrier()
print("epoch 2", flush=True)
dist.destroy_process_group()
