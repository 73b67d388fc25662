# /// verdict
# needs = ["torch"]
# after = "waits for the cache"
# who = ["rank 1"]
# says = ["rank 1", ["{here}", "no such shard"]]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 waits for an event that a helper process was to set; the helper died of an error."""
import multiprocessing

import torch
import torch.distributed as dist


def fill(event):
    raise KeyError("no such shard")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        event = multiprocessing.get_context("spawn").Event()
        multiprocessing.get_context("spawn").Process(target=fill, args=(event,)).start()
        print("waits for the cache", flush=True)
        event.wait()  # here
    dist.all_reduce(torch.ones(1))
