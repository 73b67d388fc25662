# /// verdict
# needs = ["torch"]
# after = "called"
# who = ["rank 1"]
# says = ["rank 1 keeps the others waiting", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 0 leaves RPC, which waits for all; rank 1 waits for an event that is never set."""
import os
import threading

import torch.distributed.rpc as rpc

rank = int(os.environ["RANK"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
print("called", rank, flush=True)
if rank == 1:
    threading.Event().wait()  # here
rpc.shutdown()
