# /// verdict
# needs = ["torch"]
# start = "PyTorchJob"
# after = "joining"
# everyone = true
# who = ["rank 1"]
# says = ["rendezvous is not complete", "127.0.0.1"]
# never = ["message between them was lost"]
# ///
"""The address of the master was written into the script, as it works on one machine."""
import os

import torch.distributed as dist

os.environ["MASTER_ADDR"] = "127.0.0.1"
print("joining", flush=True)
dist.init_process_group("gloo")
