# /// verdict
# needs = ["torch"]
# after = "threads"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""A barrier of threads in rank 1 expects one more than there are; rank 0 waits in reduce."""
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    together = threading.Barrier(3)
    threading.Thread(target=together.wait, daemon=True).start()
    print("threads", flush=True)
    together.wait()  # here
dist.reduce(torch.ones(2), dst=0)
