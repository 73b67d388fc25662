# /// verdict
# needs = ["torch"]
# after = "KeyError"
# who = ["rank 1"]
# says = ["rank 1", "KeyError: 'tokens'"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""The thread that loads rank 1's batches dies of an error; its main thread waits for the next batch."""
import queue
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
batches, total = queue.Queue(), torch.ones(2)


def load():
    for record in [{"tokens": 1}, {"tokens": 2}, {"token": 3} if dist.get_rank() == 1 else {"tokens": 3}]:
        batches.put(record["tokens"])


threading.Thread(target=load).start()
for _ in range(3):
    batches.get()
    dist.all_reduce(total)
batches.get()
