# /// verdict
# needs = ["torch"]
# after = "Traceback"
# who = ["rank 1"]
# says = ["rank 1", "ValueError: the vocabulary has 0 words"]
# never = ["rank 0 (pod", "message between them was lost"]
# ///
"""The main thread of rank 1 raises, but a thread that is no daemon keeps its process."""
import threading
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(2)
dist.all_reduce(total)
if dist.get_rank() == 1:
    threading.Thread(target=time.sleep, args=(600,)).start()
    raise ValueError("the vocabulary has 0 words")
dist.all_reduce(total)
