# /// verdict
# needs = ["torch"]
# ranks = 2
# who = ["rank 1"]
# says = ["SIGABRT", "no kernel image"]
# ///
"""rank 1 ends in C++: an exception that a native thread does not catch."""
import os

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    os.write(2, b"terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: no kernel image is available\n"
             b"Exception raised from launch at ../aten/Launch.cpp:31 (most recent call first):\nframe #0: c10::Error::Error + 0x7d (0x7f)\n\n")
    os.abort()
dist.barrier()
