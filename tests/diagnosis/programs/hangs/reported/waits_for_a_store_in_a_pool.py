# /// verdict
# needs = ["torch"]
# after = "waiting"
# who = ["rank 1"]
# says = ["rank 1", ["{here}", "{inside}"]]
# never = ["rank 0 keeps"]
# ///
"""A thread of rank 1's pool asks the store for a key that nobody sets; rank 0 waits in all_reduce."""
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
store = dist.distributed_c10d._get_default_store()


def fetch():
    store.wait(["epoch_7_done"], timedelta(hours=1))  # inside


if dist.get_rank() == 1:
    print("waiting", flush=True)
    ThreadPoolExecutor(1).submit(fetch).result()  # here
dist.all_reduce(torch.ones(1))
