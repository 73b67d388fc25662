# /// verdict
# needs = ["torch"]
# after = "waiting for a signal"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 waits for SIGUSR2, and SIGUSR1 was sent; rank 0 waits for its parameters."""
import os
import signal

import torch
import torch.distributed as dist

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})  # before there are threads, which inherit it
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGUSR1)
    print("waiting for a signal", flush=True)
    signal.sigwait({signal.SIGUSR2})  # here
dist.broadcast(torch.zeros(8), src=1)
