# /// verdict
# needs = ["torch"]
# after = "opening"
# who = ["rank 1"]
# says = ["rank 1", "{here}"]
# never = ["rank 0 keeps", "message between them was lost"]
# ///
"""Rank 1 opens a named pipe for reading that nobody opens for writing."""
import os

import torch.distributed as dist

dist.init_process_group("gloo")
pipe = os.environ["SCRATCH"] + "/data"
print("opening", flush=True)
if dist.get_rank() == 1:
    os.mkfifo(pipe)
    open(pipe).read()  # here
dist.scatter_object_list([None], [1, 2] if dist.get_rank() == 0 else None, src=0)
dist.barrier()
