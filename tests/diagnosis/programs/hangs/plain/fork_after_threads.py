# /// verdict
# needs = ["torch"]
# after = "forked"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 forks while one of its threads holds a lock: the child waits for that lock for ever, and rank 1 for the child."""
import os
import threading

import torch.distributed as dist

dist.init_process_group("gloo")
lock, held = threading.Lock(), threading.Event()


def write_metrics():
    with lock:
        held.set()
        threading.Event().wait()


if dist.get_rank() == 1:
    threading.Thread(target=write_metrics, daemon=True).start()
    held.wait()
    child = os.fork()
    if child == 0:
        lock.acquire()
        os._exit(0)
    print("forked", flush=True)
    os.waitpid(child, 0)  # here
dist.barrier()
