# /// verdict
# needs = ["torch"]
# after = "store is up"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps"]
# ///
"""Rank 0 waits in the store for a key that rank 1 never sets."""
import os
import signal

import torch.distributed as dist

rank = int(os.environ["RANK"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, rank == 0)
print("store is up", flush=True)
if rank == 1:
    signal.pause()  # here
store.get("shards")
