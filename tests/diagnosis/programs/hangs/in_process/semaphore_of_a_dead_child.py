# /// verdict
# needs = ["torch"]
# after = "caching"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""A child of rank 1 died with the semaphore in its hands; rank 1 waits for it, and rank 0 in all_gather_object."""
import multiprocessing
import os

import torch.distributed as dist


def warm_the_cache(semaphore):
    semaphore.acquire()
    os._exit(0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        semaphore = multiprocessing.get_context("spawn").Semaphore(1)
        child = multiprocessing.get_context("spawn").Process(target=warm_the_cache, args=(semaphore,))
        child.start()
        child.join()
        print("caching", flush=True)
        semaphore.acquire()  # here
    dist.all_gather_object([None, None], "ready")
