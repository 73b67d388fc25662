# /// verdict
# needs = ["torch"]
# after = "epoch 0"
# ///
"""Both ranks take each batch from a queue; the producer of rank 1 computes for six seconds for each, while rank 0 waits in all_reduce."""
import hashlib
import multiprocessing
import os
import time

import torch
import torch.distributed as dist


def produce(queue):
    for number in range(4):
        end = time.monotonic() + (6 if os.environ["RANK"] == "1" else 0)
        value = b"x" * 100_000
        while time.monotonic() < end:
            value = hashlib.sha256(value).digest() * 3000
        queue.put(number)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    queue = multiprocessing.Queue()
    multiprocessing.Process(target=produce, args=(queue,), daemon=True).start()
    print("epoch 0", flush=True)
    for _ in range(4):
        number = queue.get()
        dist.all_reduce(torch.ones(1))
        print("batch", number, flush=True)
