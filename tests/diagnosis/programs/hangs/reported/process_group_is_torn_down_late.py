# /// verdict
# needs = ["torch"]
# after = "last step"
# everyone = true
# ranks = 3
# who = ["rank 2"]
# says = ["rank 2", "{here}"]
# never = ["message between them was lost"]
# ///
"""Rank 2 waits for a thread of its writer after training; the others are in the last barrier."""
import queue
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("last step", flush=True)
if dist.get_rank() == 2:
    lines = queue.Queue()
    writer = threading.Thread(target=lines.get)
    writer.start()
    writer.join()  # here
dist.barrier()
