# /// verdict
# needs = ["torch"]
# who = ["rank 1"]
# says = ["rank 1", "exit code 7", "shard 7 cannot be opened"]
# never = ["rank 0 (pod"]
# ///
"""Rank 1 logs why and leaves with os._exit, which runs no handler; rank 0 loses it in a collective."""
import logging
import os

import torch
import torch.distributed as dist

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
dist.init_process_group("gloo")
for step in range(20):
    dist.all_reduce(torch.ones(3))
    if step == 5 and dist.get_rank() == 1:
        logging.error("shard 7 cannot be opened")
        os._exit(7)
