# /// verdict
# needs = ["torch"]
# after = "saving"
# who = ["rank 1"]
# says = ["rank 1", ["{here}", "{inside}"]]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 gets a signal while it holds a lock, and its handler wants the same lock."""
import os
import signal
import threading

import torch
import torch.distributed as dist

lock = threading.Lock()


def save(*_):
    with lock:  # inside
        print("saved", flush=True)


dist.init_process_group("gloo")
dist.barrier()
signal.signal(signal.SIGUSR1, save)
if dist.get_rank() == 1:
    with lock:
        print("saving", flush=True)
        os.kill(os.getpid(), signal.SIGUSR1)  # here
        threading.Event().wait(0.1)
dist.all_reduce(torch.ones(1))
