# /// verdict
# needs = ["torch"]
# after = "waits for its child"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 waits for the end of a child, which does not end before somebody reads what it has put into a queue."""
import multiprocessing

import torch.distributed as dist


def tokenize(results):
    results.put(b"t" * (1 << 20))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        spawn = multiprocessing.get_context("spawn")
        results = spawn.Queue()
        child = spawn.Process(target=tokenize, args=(results,))
        child.start()
        print("waits for its child", flush=True)
        child.join()  # here
        results.get()
    dist.barrier()
