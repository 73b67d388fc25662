# /// verdict
# needs = ["torch"]
# after = "joining"
# everyone = true
# says = ["rendezvous is not complete", "2 ranks run, they expect 3"]
# never = ["message between them was lost", "keeps the others waiting"]
# ///
"""The launcher counts one rank too many."""
import os

import torch.distributed as dist

os.environ["WORLD_SIZE"] = str(int(os.environ["WORLD_SIZE"]) + 1)
print("joining", flush=True)
dist.init_process_group("gloo")
