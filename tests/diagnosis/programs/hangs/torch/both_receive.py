# /// verdict
# needs = ["torch"]
# after = "stage"
# says = ["{here}", "recv"]
# never = ["keeps the others waiting"]
# ///
"""Two stages of a pipeline each wait for the other's message: both call recv first."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("stage", dist.get_rank(), flush=True)
message = torch.zeros(4)
dist.recv(message, 1 - dist.get_rank())  # here
dist.send(message, 1 - dist.get_rank())
