# /// verdict
# needs = ["torch"]
# after = "sharing"
# everyone = true
# who = ["rank 0", "rank 1"]
# says = ["broadcast", "{here}"]
# never = ["keeps the others waiting"]
# ///
"""Each rank takes the other for the source of a broadcast: both receive."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("sharing", flush=True)
dist.broadcast(torch.ones(4), src=1 - dist.get_rank())  # here
