# /// verdict
# needs = ["torch"]
# after = "ready"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keep", "message between them was lost"]
# ///
"""Each rank reduces in a thread, which its main thread joins; the one of rank 1 waits for a gate that nobody opens."""
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("ready", flush=True)
gate = threading.Event()

def sync():
    if dist.get_rank() == 1:
        gate.wait()  # here
    dist.all_reduce(torch.ones(4))

t = threading.Thread(target=sync)
t.start()
t.join()
