# /// verdict
# needs = ["torch"]
# after = "exchanging"
# everyone = true
# who = ["rank 0", "rank 1"]
# says = ["send", "{here}"]
# never = ["keeps the others waiting"]
# ///
"""Two ranks exchange large tensors, and both send first."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("exchanging", flush=True)
mine = torch.ones(1 << 22)
dist.send(mine, 1 - dist.get_rank())  # here
dist.recv(mine, 1 - dist.get_rank())
