# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["rank 1", "exit code 13", "watchdog: no heartbeat of the reader for 2 s"]
# ///
"""A thread of rank 1 ends the process with os._exit after a sentence; rank 0 loses its peer."""
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()


def watch():
    time.sleep(1)
    print("watchdog: no heartbeat of the reader for 2 s", file=sys.stderr, flush=True)
    os._exit(13)


if dist.get_rank() == 1:
    threading.Thread(target=watch, daemon=True).start()
    time.sleep(60)
dist.all_reduce(torch.ones(2))
