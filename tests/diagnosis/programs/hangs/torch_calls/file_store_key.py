# /// verdict
# needs = ["torch"]
# after = "store is open"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 0 waits in a FileStore for a key; rank 1 waits for a message of its own queue before it sets it."""
import multiprocessing
import os

import torch.distributed as dist

rank = int(os.environ["RANK"])
store = dist.FileStore(os.environ["SCRATCH"] + "/store", 2)
print("store is open", flush=True)
if rank == 0:
    store.get("vocabulary")
multiprocessing.Queue().get()  # here
store.set("vocabulary", "32000")
