# /// verdict
# needs = ["torch"]
# after = "trained"
# everyone = true
# who = ["rank 1"]
# says = ["rank 0", "has ended with exit code 0", "rank 1", "{here}"]
# never = ["message between them was lost"]
# ///
"""Both ranks have trained. Rank 0 has ended; rank 1's program is over, too, but a thread that uploads waits for ever, and Python for it."""
import threading

import torch
import torch.distributed as dist


def upload():
    threading.Event().wait()  # here


dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    threading.Thread(target=upload).start()
dist.destroy_process_group()
print("trained", flush=True)
