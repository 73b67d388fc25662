# /// verdict
# needs = ["torch"]
# after = "tokenizing"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""A worker of rank 1's multiprocessing.Pool was killed with its task: Pool.map waits for the answer for ever. Rank 0 waits in a barrier."""
import multiprocessing
import os
import signal

import torch.distributed as dist


def tokenize(shard):
    if shard == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return shard


if __name__ == "__main__":
    dist.init_process_group("gloo")
    print("tokenizing", flush=True)
    if dist.get_rank() == 1:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            pool.map(tokenize, range(8), chunksize=1)  # here
    dist.barrier()
