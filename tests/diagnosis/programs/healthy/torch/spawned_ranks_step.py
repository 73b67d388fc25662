# /// verdict
# needs = ["torch"]
# ranks = 1
# after = "step 1"
# ///
"""One pod whose program starts two ranks with torch.multiprocessing.spawn; a step takes a moment."""
import os
import time

import torch
import torch.distributed as dist


def train(rank, place):
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    for step in range(20):
        time.sleep(0.5 if rank == 0 else 0.1)
        dist.all_reduce(torch.ones(100))
        if rank == 0 and step % 5 == 1:
            print("step", step, flush=True)


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (os.environ["SCRATCH"] + "/store",), nprocs=2)
