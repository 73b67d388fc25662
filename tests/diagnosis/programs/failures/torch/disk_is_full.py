# /// verdict
# needs = ["torch"]
# who = ["rank 0"]
# says = ["No space left on device", "{here}"]
# never = ["onnection closed"]
# ///
"""Rank 0's checkpoint does not fit; rank 1 loses its peer in the barrier."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(torch.ones(1000).numpy().tobytes())  # here
dist.barrier()
