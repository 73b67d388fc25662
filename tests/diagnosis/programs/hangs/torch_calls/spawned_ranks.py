# /// verdict
# needs = ["torch"]
# ranks = 1
# after = "training"
# who = ["rank 0", "rank 1"]
# says = ["{here}"]
# never = ["message between them was lost", "waits for no other rank"]
# ///
"""One pod whose program starts two ranks with torch.multiprocessing.spawn: the second sleeps, the first waits for it."""
import time

import torch
import torch.distributed as dist


def train(rank, place):
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    dist.barrier()
    print("training", flush=True)
    if rank == 1:
        time.sleep(600)  # here
    dist.all_reduce(torch.ones(2))


if __name__ == "__main__":
    import os

    torch.multiprocessing.spawn(train, (os.environ["SCRATCH"] + "/store",), nprocs=2)
