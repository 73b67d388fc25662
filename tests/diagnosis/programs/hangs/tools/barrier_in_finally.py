# /// verdict
# needs = ["torch"]
# after = "validating"
# who = ["rank 0", "rank 1"]
# says = ["rank 1", "barrier", "{last}", "all_reduce", "{others}"]
# never = ["message between them was lost"]
# ///
"""Rank 1 raises, and its `finally` waits in a barrier before anybody sees the error; rank 0 waits in all_reduce."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("validating", flush=True)
try:
    if dist.get_rank() == 1:
        raise ValueError("no validation data")
    dist.all_reduce(torch.ones(1))  # others
finally:
    dist.barrier()  # last
