# /// verdict
# needs = ["torch"]
# after = "ready"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""A functional collective of torch: rank 0 waits for its tensor, rank 1 waits for input from a peer that there is not."""
import socket

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group("gloo")
dist.barrier()
print("ready", flush=True)
if dist.get_rank() == 1:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.accept()  # here
print(functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD).sum().item())
