# /// verdict
# needs = ["torch"]
# after = "asks its pool"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Somebody has stopped the process that works for rank 1 with SIGSTOP; rank 1 waits for its answer."""
import multiprocessing
import os
import signal

import torch.distributed as dist

if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        pool = multiprocessing.get_context("spawn").Pool(1)
        os.kill(pool.apply(os.getpid), signal.SIGSTOP)
        print("asks its pool", flush=True)
        pool.apply(len, ([],))  # here
    dist.barrier()
