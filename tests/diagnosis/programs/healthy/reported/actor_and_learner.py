# /// verdict
# needs = ["torch"]
# after = "episode 0"
# ///
"""Rank 1 plays episodes of eight seconds in processes of its own; rank 0 learns from what it sends, and waits meanwhile."""
import multiprocessing
import time

import torch
import torch.distributed as dist


def play(seed):
    end = time.monotonic() + 8
    while time.monotonic() < end:
        seed = (seed * 1103515245 + 12345) % (1 << 31)
    return float(seed)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    pool = multiprocessing.get_context("spawn").Pool(1) if dist.get_rank() == 1 else None
    for episode in range(3):
        result = torch.tensor([pool.apply(play, (episode,))]) if pool else torch.zeros(1)
        dist.broadcast(result, src=1)
        print("episode", episode, flush=True)
    if pool:
        pool.close()
    dist.destroy_process_group()
