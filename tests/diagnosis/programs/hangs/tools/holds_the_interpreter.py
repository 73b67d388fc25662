# /// verdict
# needs = ["torch"]
# after = "native call"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps"]
# ///
"""A native call of rank 1 keeps Python's lock and never returns, so none of its threads runs; rank 0 waits for its gradients."""
import ctypes

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    print("native call", flush=True)
    ctypes.PyDLL(None).pause()  # here
dist.all_reduce(torch.ones(1))
