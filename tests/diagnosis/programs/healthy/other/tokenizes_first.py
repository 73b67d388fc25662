# /// verdict
# needs = ["torch"]
# after = "tokenizing"
# ///
"""Rank 0 tokenizes with a pool of processes, as `main_process_first` lets it; rank 1 waits in a barrier and says nothing."""
import hashlib
import multiprocessing
import time

import torch.distributed as dist


def tokenize(shard):
    value, end = b"", time.monotonic() + 3
    while time.monotonic() < end:
        value = hashlib.sha256(value + bytes(shard)).digest()
    return value


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        print("tokenizing", flush=True)
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.map(tokenize, range(8), chunksize=1)
    dist.barrier()
    print("done", flush=True)
