# /// verdict
# needs = ["torch"]
# after = "reading"
# who = ["rank 1"]
# says = ["rank 1", ["{here}", "{inside}"]]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""A task in rank 1's pool of one thread waits for another task of that pool; rank 0 waits in gather."""
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

pool = ThreadPoolExecutor(1)


def shard():
    return 3


def read():
    return pool.submit(shard).result()  # inside


dist.init_process_group("gloo")
if dist.get_rank() == 1:
    print("reading", flush=True)
    pool.submit(read).result()  # here
into = [torch.zeros(2), torch.zeros(2)] if dist.get_rank() == 0 else None
dist.gather(torch.ones(2), into)
