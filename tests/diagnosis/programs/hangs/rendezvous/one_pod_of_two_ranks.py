# /// verdict
# needs = ["torch"]
# ranks = 1
# after = "joining"
# says = ["rendezvous is not complete", "1 rank runs, it expects 2"]
# never = ["waits for no other rank"]
# ///
"""A script of two ranks, started as one process."""
import os

import torch.distributed as dist

print("joining", flush=True)
dist.init_process_group("gloo", rank=0, world_size=2, init_method=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}")
