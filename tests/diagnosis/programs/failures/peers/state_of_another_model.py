# /// verdict
# needs = ["torch"]
# who = ["rank 0", "rank 1"]
# says = ["Error(s) in loading state_dict for Linear", "size mismatch for weight", "{here}"]
# ///
"""A checkpoint of another size: torch's message has its reason in later lines."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
model.module.load_state_dict(torch.nn.Linear(8, 4).state_dict())  # here
