# /// verdict
# needs = ["torch"]
# after = "batch 1"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""The data loader's process of rank 1 takes its samples from a queue that a producer fills no more; rank 0 waits in all_reduce."""
import multiprocessing
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, queue):
        self.queue = queue

    def __iter__(self):
        while True:
            yield self.queue.get()


def produce(queue):
    for number in range(16 if os.environ["RANK"] == "1" else 400):
        queue.put(torch.ones(2).tolist())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    queue = multiprocessing.Queue()
    multiprocessing.Process(target=produce, args=(queue,), daemon=True).start()
    for number, batch in enumerate(DataLoader(Stream(queue), batch_size=4, num_workers=1, prefetch_factor=2)):  # here
        dist.all_reduce(torch.ones(1))
        print("batch", number, flush=True)
