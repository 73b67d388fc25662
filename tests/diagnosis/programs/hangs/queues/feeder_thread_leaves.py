# /// verdict
# needs = ["torch"]
# after = "waits for a batch"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1's thread that fills a queue leaves with sys.exit, which ends that thread alone and says nothing."""
import queue
import sys
import threading

import torch
import torch.distributed as dist

batches = queue.Queue()


def feed():
    batches.put(torch.ones(2))
    sys.exit("the shard has no more lines")


dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    threading.Thread(target=feed).start()
    batches.get()
    print("waits for a batch", flush=True)
    batches.get()  # here
dist.all_reduce(torch.ones(2))
