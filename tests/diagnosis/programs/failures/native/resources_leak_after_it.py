# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["rank 1", "ValueError: the label 1000 is out of range", "{here}"]
# ///
"""Rank 1 fails while semaphores and a process group are open: libraries warn about these after the traceback."""
import multiprocessing
import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
context = multiprocessing.get_context("spawn")
locks = [context.Lock() for _ in range(4)]
dist.barrier()
if dist.get_rank() == 1:
    raise ValueError("the label 1000 is out of range")  # here
dist.all_reduce(torch.ones(2))
