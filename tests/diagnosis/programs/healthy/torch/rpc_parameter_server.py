# /// verdict
# needs = ["torch"]
# ranks = 3
# after = "pushed 1"
# ///
"""A parameter server over RPC that only answers; its workers compute."""
import os
import time

import torch
import torch.distributed.rpc as rpc

weights = torch.zeros(8)


def push(gradient):
    weights.sub_(gradient)
    return weights


rank = int(os.environ["RANK"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=3)
if rank:
    for number in range(8):
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            gradient = torch.randn(200, 200).svd().S[:8] * 0.001
        rpc.rpc_sync("worker0", push, args=(gradient,))
        print("pushed", number, flush=True)
rpc.shutdown()
