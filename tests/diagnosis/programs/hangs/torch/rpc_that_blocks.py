# /// verdict
# needs = ["torch"]
# after = "calling"
# who = ["rank 1"]
# says = ["rank 0", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 0 calls a function of rank 1 over RPC; the function waits for a lock."""
import os
import threading

import torch.distributed.rpc as rpc

LOCK = threading.Lock()
LOCK.acquire()


def lookup(key):
    with LOCK:
        return key


rank = int(os.environ["RANK"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
print("calling", flush=True)
if rank == 0:
    print(rpc.rpc_sync("worker1", lookup, args=(3,), timeout=0))  # here
rpc.shutdown()
