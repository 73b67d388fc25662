# /// verdict
# needs = ["torch"]
# who = ["rank 0"]
# says = ["rank 0", "ValueError: shard 3 has no rows"]
# ///
"""A function that rank 0 calls on rank 1 raises there; rank 0 raises the error and ends, rank 1 serves until it loses it."""
import os

import torch.distributed.rpc as rpc


def count(shard):
    raise ValueError(f"shard {shard} has no rows")


rank = int(os.environ["RANK"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
if rank == 0:
    rpc.rpc_sync("worker1", count, args=(3,))
rpc.shutdown()
