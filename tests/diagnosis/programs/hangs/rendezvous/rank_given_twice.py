# /// verdict
# needs = ["torch"]
# ranks = 3
# after = "joining"
# everyone = true
# says = ["rendezvous is not complete", "rank 1 and rank 2 join as rank 1, and nobody as rank 2"]
# who = ["rank 1", "rank 2"]
# never = ["message between them was lost", "keeps the others waiting"]
# ///
"""A hand-written launcher gives two processes the number 1 and nobody the number 2."""
import os

import torch.distributed as dist

os.environ["RANK"] = str(min(1, int(os.environ["RANK"])))
print("joining", flush=True)
dist.init_process_group("gloo")
